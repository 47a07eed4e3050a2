// float16 (IEEE binary16) and bfloat16 as stored, with conversions from and to float32 that round to nearest,
// ties to even. Arithmetic is not done in them: engine/import widens what is not a mere copy. Thread rule:
// pure functions.
#pragma once

#include <bit>
#include <cstdint>

#include "engine/ops/common/scalar_formulas.h"

namespace braid {

struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  BRAID_INLINE explicit Float16(float x) : bits(round(std::bit_cast<std::uint32_t>(x))) {}
  BRAID_INLINE explicit operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
    const std::uint32_t magnitude = bits & 0x7FFFU;
    if (magnitude >= 0x7C00U)  // infinity, NaN
      return std::bit_cast<float>(sign | 0x7F800000U | (magnitude & 0x3FFU) << 13);
    // The exponent's bias is off by 112; a multiplication moves it and makes normal numbers of denormal ones.
    const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }

 private:
  BRAID_INLINE static std::uint16_t round(std::uint32_t f) {
    const auto sign = static_cast<std::uint16_t>(f >> 16 & 0x8000U);
    const std::uint32_t magnitude = f & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) return with_sign(sign, 0x7E00U);   // NaN
    if (magnitude >= 0x477FF000U) return with_sign(sign, 0x7C00U);  // 65520 and above round to infinity
    if (magnitude < 0x38800000U) {  // below 2^-14: denormal, a multiple of 2^-24
      const float shifted = std::bit_cast<float>(magnitude) + 0.5F;  // whose last bit is then 2^-24
      return with_sign(sign, std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U);
    }
    const std::uint32_t odd = magnitude >> 13 & 1U;
    return with_sign(sign, (magnitude - 0x38000000U + 0xFFFU + odd) >> 13);
  }
  BRAID_INLINE static std::uint16_t with_sign(std::uint16_t sign, std::uint32_t rest) {
    return static_cast<std::uint16_t>(sign | rest);
  }
};

struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  BRAID_INLINE explicit BFloat16(float x) {
    const auto f = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t odd = f >> 16 & 1U;
    bits = x != x ? static_cast<std::uint16_t>(f >> 16 | 0x40U)
                  : static_cast<std::uint16_t>((f + 0x7FFFU + odd) >> 16);
  }
  BRAID_INLINE explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

namespace formula {

/// Cast between any two types: convert() of scalar_formulas.h, halves through float32.
template <class To, class From>
BRAID_INLINE To convert_any(From x) {
  if constexpr (std::is_arithmetic_v<From> && std::is_arithmetic_v<To>)
    return convert<To>(x);
  else if constexpr (std::is_arithmetic_v<To>)
    return convert<To>(static_cast<float>(x));
  else
    return To(static_cast<float>(x));
}

}  // namespace formula
}  // namespace braid
