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

/// The value of one attribute. Integers are int64, floats double. What the compiler would write in every
/// source that has attributes is written once, in attr.cc.
struct Attr : AttrValue_ {
  Attr();
  Attr(const Attr& other);
  Attr(Attr&& other) noexcept;
  Attr& operator=(const Attr& other);
  Attr& operator=(Attr&& other) noexcept;
  ~Attr();

  // Implicit by design: {{"axis", 1}, {"name", "x"}}.
  Attr(std::int64_t value);
  Attr(int value);
  Attr(double value);
  Attr(float value);
  Attr(bool value);
  Attr(std::string value);
  Attr(const char* value);
  Attr(std::string_view value);
  Attr(DType value);
  Attr(Shape value);
  Attr(Tensor value);
  Attr(std::vector<std::int64_t> value);
  Attr(std::vector<double> value);
  Attr(std::vector<bool> value);
  Attr(std::vector<std::string> value);
  Attr(std::vector<DType> value);
  Attr(std::vector<Shape> value);
};

/// Attributes by name, in the order of their names.
class AttrMap {
 public:
  AttrMap();
  AttrMap(std::initializer_list<std::pair<const std::string, Attr>> items);
  AttrMap(const AttrMap& other);
  AttrMap(AttrMap&& other) noexcept;
  AttrMap& operator=(const AttrMap& other);
  AttrMap& operator=(AttrMap&& other) noexcept;
  ~AttrMap();

  bool has(std::string_view name) const;
  void set(std::string name, Attr value);
  const Attr* find(std::string_view name) const;
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
