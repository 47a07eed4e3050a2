// Elementary functions that the compiler can put into vector loops: no branches, no calls, no tables. float32
// has own forms, within 4 units in the last place of the true value over the whole range, infinities and NaN
// included; float64 goes to the C library. Not libmvec: it needs -ffast-math and its bits differ between
// vector widths, these do not.
//
// Formulas: exp(x) = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2 (Cody and Waite's two-part ln 2);
// log(x) = e ln 2 + log(1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); the polynomials are Chebyshev fits on
// those intervals, made for this file. The sums that round to integers need plain IEEE rounding: never
// compile this with -ffast-math.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/ops/common/kernel_util.h"

namespace braid::vec {

inline constexpr float kLn2High = 0.693359375F;  // 9 bits: n * kLn2High is exact
inline constexpr float kLn2Low = -2.12194440e-4F;
inline constexpr float kLog2E = 1.44269504F;
inline constexpr float kRoundToInt =
    12582912.0F;  // 1.5 * 2^23: adding it leaves the rounded integer in the low bits

/// The integer in the low bits of x + kRoundToInt; unsigned inside, because NaN would overflow.
BRAID_INLINE std::int32_t rounded_integer(float shifted) {
  return static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) -
                                   std::bit_cast<std::uint32_t>(kRoundToInt));
}

/// e^r - 1 for |r| <= ln 2 / 2.
BRAID_INLINE float expm1_reduced(float r) {
  float p = 1.989108046e-4F;
  p = p * r + 1.393373072e-3F;
  p = p * r + 8.333310845e-3F;
  p = p * r + 4.166646420e-2F;
  p = p * r + 1.666666668e-1F;
  p = p * r + 5.000000014e-1F;
  return p * (r * r) + r;
}

BRAID_INLINE float exp(float x) {
  x = x < -104.0F ? -104.0F : x;  // below: 0; NaN passes both comparisons
  x = x > 89.0F ? 89.0F : x;      // above: infinity
  const float shifted = x * kLog2E + kRoundToInt;
  const float n = shifted - kRoundToInt;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  const float y = expm1_reduced(r) + 1.0F;
  // 2^n in two factors, so that n = 128 overflows and n < -126 becomes denormal only in the last product.
  const std::int32_t i = rounded_integer(shifted);
  const std::int32_t half = i >> 1;
  const float scale1 = std::bit_cast<float>((half + 127) << 23);
  const float scale2 = std::bit_cast<float>((i - half + 127) << 23);
  return y * scale1 * scale2;
}

BRAID_INLINE float log(float x) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const bool denormal = x < 1.17549435e-38F;
  const float scaled = denormal ? x * 8388608.0F : x;
  const auto bits = std::bit_cast<std::uint32_t>(scaled);
  const std::int32_t e = static_cast<std::int32_t>(bits - 0x3f3504f3U) >> 23;  // 0x3f3504f3 is sqrt(1/2)
  const float f = std::bit_cast<float>(bits - (static_cast<std::uint32_t>(e) << 23)) - 1.0F;
  const float n = static_cast<float>(e) - (denormal ? 23.0F : 0.0F);
  float p = 6.972518634e-2F;
  p = p * f - 1.148121206e-1F;
  p = p * f + 1.168578472e-1F;
  p = p * f - 1.242552336e-1F;
  p = p * f + 1.424900724e-1F;
  p = p * f - 1.666780713e-1F;
  p = p * f + 2.000071721e-1F;
  p = p * f - 2.499999693e-1F;
  p = p * f + 3.333333117e-1F;
  const float f2 = f * f;
  float y = (f * f2) * p + n * kLn2Low - 0.5F * f2 + f + n * kLn2High;
  y = x < kInf ? y : x;  // infinity and NaN as they are
  y = x == 0.0F ? -kInf : y;
  return x < 0.0F ? std::numeric_limits<float>::quiet_NaN() : y;
}

/// 2^n (e^r - 1) + (2^n - 1), halved inside so that n = 128 does not overflow early.
BRAID_INLINE float expm1(float x) {
  x = x < -20.0F ? -20.0F : x;  // below: -1
  x = x > 89.0F ? 89.0F : x;
  const float shifted = x * kLog2E + kRoundToInt;
  const float n = shifted - kRoundToInt;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  const std::int32_t i = rounded_integer(shifted);
  const float half_scale = std::bit_cast<float>((i + 126) << 23);
  return 2.0F * (expm1_reduced(r) * half_scale + (half_scale - 0.5F));
}

/// log(u) is exact for u = fl(1 + x); the second term puts back what the rounding of 1 + x lost (NaN at -1
/// and infinity: nothing).
BRAID_INLINE float log1p(float x) {
  const float u = 1.0F + x;
  const float lost = ((u - 1.0F) - x) / u;
  return log(u) - (lost == lost ? lost : 0.0F);
}

BRAID_INLINE float tanh(float x) {
  const float a = std::abs(x);
  const float t = expm1(2.0F * (a > 10.0F ? 10.0F : a));  // tanh(10) rounds to 1
  return std::copysign(t / (t + 2.0F), x);
}

/// 0 below -88.8, where the true value is a denormal number.
BRAID_INLINE float sigmoid(float x) { return 1.0F / (1.0F + exp(-x)); }

/// erf(x) / x as a polynomial of x^2 below 1; 1 - e^q(x) above, which is 1 in float32 from 4 on.
BRAID_INLINE float erf(float x) {
  const float a = std::abs(x), s = x * x;
  float p = 7.875875063e-5F;
  p = p * s - 8.016864287e-4F;
  p = p * s + 5.189087423e-3F;
  p = p * s - 2.685421201e-2F;
  p = p * s + 1.128359472e-1F;
  p = p * s - 3.761262667e-1F;
  p = p * s + 1.128379166F;
  const float b = a > 4.0F ? 4.0F : a;
  float q = 1.637151415e-6F;
  q = q * b - 4.605804269e-5F;
  q = q * b + 5.968056257e-4F;
  q = q * b - 4.759596293e-3F;
  q = q * b + 2.642113601e-2F;
  q = q * b - 1.100800829e-1F;
  q = q * b - 6.318260516e-1F;
  q = q * b - 1.130233435F;
  q = q * b + 3.201380497e-4F;
  const float tail = std::copysign(1.0F - exp(q), x);
  return a < 1.0F ? x * p : tail;
}

BRAID_INLINE double exp(double x) { return std::exp(x); }
BRAID_INLINE double log(double x) { return std::log(x); }
BRAID_INLINE double expm1(double x) { return std::expm1(x); }
BRAID_INLINE double log1p(double x) { return std::log1p(x); }
BRAID_INLINE double tanh(double x) { return std::tanh(x); }
BRAID_INLINE double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
BRAID_INLINE double erf(double x) { return std::erf(x); }

}  // namespace braid::vec
