// Typed attributes of a node, as TensorFlow's AttrValue has them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "engine/ir/shape.h"
#include "engine/ir/tensor.h"

namespace braid {

using AttrValue_ = std::variant<std::int64_t, double, bool, std::string, DType, Shape, Tensor,
                                std::vector<std::int64_t>, std::vector<double>, std::vector<bool>,
                                std::vector<std::string>, std::vector<DType>, std::vector<Shape>>;

/// The value of one attribute. Integers are int64, floats double.
struct Attr : AttrValue_ {
  using AttrValue_::AttrValue_;
  Attr(int value) : AttrValue_(static_cast<std::int64_t>(value)) {}  // NOLINT: implicit by design
  Attr(float value) : AttrValue_(static_cast<double>(value)) {}      // NOLINT
  Attr(const char* value) : AttrValue_(std::string(value)) {}        // NOLINT
  Attr(std::string_view value) : AttrValue_(std::string(value)) {}   // NOLINT
};

/// Attributes by name, in the order of their names.
class AttrMap {
 public:
  AttrMap() = default;
  AttrMap(std::initializer_list<std::pair<const std::string, Attr>> items) : items_(items) {}

  bool has(std::string_view name) const { return items_.find(name) != items_.end(); }
  void set(std::string name, Attr value) { items_.insert_or_assign(std::move(name), std::move(value)); }
  const Attr* find(std::string_view name) const {
    auto it = items_.find(name);
    return it == items_.end() ? nullptr : &it->second;
  }
  /// The attribute's value, or `fallback` when it is absent. Throws: InvalidArgument naming the attribute
  /// when it has another type.
  template <class T>
  T get(std::string_view name, T fallback) const;
  /// Throws: InvalidArgument when it is absent or has another type.
  template <class T>
  const T& require(std::string_view name) const;

  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  std::size_t size() const { return items_.size(); }

 private:
  std::map<std::string, Attr, std::less<>> items_;
};

[[noreturn]] void throw_attr_missing(std::string_view name);
[[noreturn]] void throw_attr_type(std::string_view name);

template <class T>
T AttrMap::get(std::string_view name, T fallback) const {
  const Attr* attr = find(name);
  if (!attr) return fallback;
  const T* value = std::get_if<T>(static_cast<const AttrValue_*>(attr));
  if (!value) throw_attr_type(name);
  return *value;
}

template <class T>
const T& AttrMap::require(std::string_view name) const {
  const Attr* attr = find(name);
  if (!attr) throw_attr_missing(name);
  const T* value = std::get_if<T>(static_cast<const AttrValue_*>(attr));
  if (!value) throw_attr_type(name);
  return *value;
}

}  // namespace braid
