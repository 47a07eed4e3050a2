// Numbers as Parquet files and arrays have them. Private to engine/input. Thread rule: pure functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace braid {

/// Little endian.
inline float half_to_float(const std::uint8_t* bytes) {
  const auto half = static_cast<std::uint32_t>(bytes[0] | bytes[1] << 8);
  const std::uint32_t sign = (half & 0x8000U) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign ? -value : value;
  }
  const std::uint32_t bits = sign | (exponent == 31 ? 255U << 23 : (exponent + 112) << 23) | fraction << 13;
  return std::bit_cast<float>(bits);
}

/// As floats.
template <class T>
bool are_finite(const T* values, std::int64_t count) {
  float sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<float>(values[i]) * 0.0F;
  return sum == 0;
}

/// Big endian, two's complement.
inline double decimal_of_bytes(const std::uint8_t* bytes, std::int64_t count) {
  double value = 0;
  for (std::int64_t i = 0; i < count; ++i)
    value = value * 256 + (i == 0 ? static_cast<double>(static_cast<std::int8_t>(bytes[i])) : bytes[i]);
  return value;
}

}  // namespace braid
