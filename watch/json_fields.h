// One list of fields for writing a record as JSON and reading it: Writer and Reader have the same calls.
// Numbers that are not finite are left out, which readers take for absent. Only for .cc files of this folder.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace braid::watch {

using OrderedJson = nlohmann::ordered_json;

class JsonWriter {
 public:
  OrderedJson json = OrderedJson::object();

  template <class T>
  void field(const char* name, const T& value) {
    if (auto made = encode(value); !made.is_null()) json[name] = std::move(made);
  }
  template <class T, class Each>
  void list(const char* name, const std::vector<T>& values, Each each) {
    OrderedJson all = OrderedJson::array();
    for (const T& value : values) {
      JsonWriter one;
      each(one, value);
      all.push_back(std::move(one.json));
    }
    json[name] = std::move(all);
  }
  template <class T, class Each>
  void part(const char* name, const T& value, Each each) {
    JsonWriter one;
    each(one, value);
    json[name] = std::move(one.json);
  }
  template <class T, class Each>
  void maybe(const char* name, const std::optional<T>& value, Each each) {
    if (value) part(name, *value, each);
  }

 private:
  static OrderedJson encode(double value) {
    return std::isfinite(value) ? OrderedJson(value) : OrderedJson();
  }
  template <class T>
  static OrderedJson encode(const std::optional<T>& value) {
    return value ? encode(*value) : OrderedJson();
  }
  static OrderedJson encode(const std::map<std::string, double>& values) {
    OrderedJson all = OrderedJson::object();
    for (const auto& [key, value] : values)
      if (std::isfinite(value)) all[key] = value;
    return all;
  }
  template <class T>
  static OrderedJson encode(const T& value) requires(std::is_integral_v<T> ||
                                                     std::is_same_v<T, std::string>) {
    return value;
  }
};

class JsonReader {
 public:
  explicit JsonReader(const OrderedJson& from) : json(from) {}
  const OrderedJson& json;

  template <class T>
  void field(const char* name, T& value) const {
    if (const OrderedJson* at = find(name)) decode(*at, value);
  }
  template <class T, class Each>
  void list(const char* name, std::vector<T>& values, Each each) const {
    values.clear();
    const OrderedJson* at = find(name);
    if (!at || !at->is_array()) return;
    for (const OrderedJson& one : *at) {
      JsonReader reader(one);
      each(reader, values.emplace_back());
    }
  }
  template <class T, class Each>
  void part(const char* name, T& value, Each each) const {
    if (const OrderedJson* at = find(name); at && at->is_object()) {
      JsonReader reader(*at);
      each(reader, value);
    }
  }
  template <class T, class Each>
  void maybe(const char* name, std::optional<T>& value, Each each) const {
    value.reset();
    if (const OrderedJson* at = find(name); at && at->is_object()) part(name, value.emplace(), each);
  }

 private:
  const OrderedJson* find(const char* name) const {
    if (!json.is_object()) return nullptr;
    const auto at = json.find(name);
    return at == json.end() ? nullptr : &*at;
  }
  static void decode(const OrderedJson& at, double& value) {
    if (at.is_number()) value = at.get<double>();
  }
  static void decode(const OrderedJson& at, bool& value) {
    if (at.is_boolean()) value = at.get<bool>();
  }
  static void decode(const OrderedJson& at, std::string& value) {
    if (at.is_string()) value = at.get<std::string>();
  }
  template <class T>
  static void decode(const OrderedJson& at, std::optional<T>& value) {
    if (!at.is_number()) return;  // all of them are numbers
    T read{};
    decode(at, read);
    value = read;
  }
  static void decode(const OrderedJson& at, std::map<std::string, double>& values) {
    values.clear();
    if (!at.is_object()) return;
    for (const auto& [key, value] : at.items())
      if (value.is_number()) values[key] = value.get<double>();
  }
  /// Of what another process says: a number that the type does not hold stays out.
  template <class T>
  static void decode(const OrderedJson& at,
                     T& value) requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    if (at.is_number_unsigned()) {
      if (const auto read = at.get<std::uint64_t>(); std::in_range<T>(read)) value = static_cast<T>(read);
    } else if (at.is_number_integer()) {
      if (const auto read = at.get<std::int64_t>(); std::in_range<T>(read)) value = static_cast<T>(read);
    }
  }
};

}  // namespace braid::watch
