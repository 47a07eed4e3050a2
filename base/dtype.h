// Element types. Numbers are those of TensorFlow's DataType (proto/graph.proto), so a cast between the two is
// valid. On disk and on the wire: never renumber.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace braid {

enum class DType : int {
  Invalid = 0,
  Float32 = 1,
  Float64 = 2,
  Int32 = 3,
  UInt8 = 4,
  Int16 = 5,
  Int8 = 6,
  String = 7,  // offsets + bytes, host only
  Int64 = 9,
  Bool = 10,
  BFloat16 = 14,
  UInt16 = 17,
  Float16 = 19,
  Resource = 20,  // a handle of a variable
  UInt32 = 22,
  UInt64 = 23,
};

/// Bytes of one element; 0 for String, Resource and Invalid.
std::size_t dtype_size(DType dtype);

/// The short name: "float32", "int64", "string".
std::string_view dtype_name(DType dtype);

/// The inverse of dtype_name; also takes TensorFlow's "float", "double", "half".
std::optional<DType> dtype_from_name(std::string_view name);

bool is_floating(DType dtype);
bool is_integer(DType dtype);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::Float32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::Float64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::Int32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::Int64;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::UInt8;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::Int8;
};
template <>
struct DTypeOf<std::int16_t> {
  static constexpr DType value = DType::Int16;
};
template <>
struct DTypeOf<std::uint16_t> {
  static constexpr DType value = DType::UInt16;
};
template <>
struct DTypeOf<std::uint32_t> {
  static constexpr DType value = DType::UInt32;
};
template <>
struct DTypeOf<std::uint64_t> {
  static constexpr DType value = DType::UInt64;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::Bool;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace braid
