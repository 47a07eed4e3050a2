// The arithmetic of base/init.h for one element, which the host's loops and kernels on a device share so that
// both have the same bits: integer operations and IEEE additions, multiplications, divisions and square roots
// in double. Compile users without contraction (-ffp-contract=off, --fmad=false). Thread rule: pure
// functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define BRAID_HOST_DEVICE __host__ __device__
#else
#define BRAID_HOST_DEVICE
#endif

namespace braid::random {

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
BRAID_HOST_DEVICE inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// The value of make_rng_key(seed, name, step) for stable_hash(name).
BRAID_HOST_DEVICE inline std::uint64_t key_value(std::uint64_t seed, std::uint64_t name_hash,
                                                 std::uint64_t step) {
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ULL;
  return mix(mix(mix(seed + kGolden) ^ name_hash) + kGolden * (step + 1));
}

BRAID_HOST_DEVICE inline float uniform01(std::uint32_t bits) {
  return static_cast<float>(static_cast<std::int32_t>(bits >> 8)) * 0x1p-24F;
}

/// The middle of the uniform's 2^-24 wide cell, so never 0 and never 1. Exact in double.
BRAID_HOST_DEVICE inline double cell_middle(std::uint32_t bits) {
  return (static_cast<std::int32_t>(bits >> 8) + 0.5) * 0x1p-24;
}

/// Natural logarithm for 0 < x < 1, normal numbers; relative error below 1e-14. Not std::log, whose last bit
/// depends on the machine. log(m 2^e) = e ln 2 + 2 artanh((m - 1) / (m + 1)), sqrt(1/2) <= m < sqrt(2).
BRAID_HOST_DEVICE inline double portable_log(double x) {
  const auto raw = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(raw >> 52) - 1023;
  double m = std::bit_cast<double>((raw & 0x000FFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1) / (m + 1), t = s * s;
  double sum = 1.0 / 19;
  for (int k = 17; k >= 1; k -= 2) sum = sum * t + 1.0 / k;
  return exponent * 0.693147180559945309417 + 2 * s * sum;
}

// Coefficients of P. J. Acklam's approximation of the inverse normal distribution function (2003); relative
// error below 1.15e-9. In double, since the two polynomials of the central part cancel near its ends.
inline constexpr double kQuantileTail = 0.02425;  // below it, and above 1 - it, the tail formula holds

BRAID_HOST_DEVICE inline double quantile_centre(double p) {
  constexpr double a0 = -3.969683028665376e+01, a1 = 2.209460984245205e+02, a2 = -2.759285104469687e+02,
                   a3 = 1.383577518672690e+02, a4 = -3.066479806614716e+01, a5 = 2.506628277459239e+00;
  constexpr double b0 = -5.447609879822406e+01, b1 = 1.615858368580409e+02, b2 = -1.556989798598866e+02,
                   b3 = 6.680131188771972e+01, b4 = -1.328068155288572e+01;
  const double q = p - 0.5, r = q * q;
  return q * (((((a0 * r + a1) * r + a2) * r + a3) * r + a4) * r + a5) /
         (((((b0 * r + b1) * r + b2) * r + b3) * r + b4) * r + 1);
}

BRAID_HOST_DEVICE inline double quantile_tail(double p) {
  constexpr double c0 = -7.784894002430293e-03, c1 = -3.223964580411365e-01, c2 = -2.400758277161838e+00,
                   c3 = -2.549732539343734e+00, c4 = 4.374664141464968e+00, c5 = 2.938163982698783e+00;
  constexpr double d0 = 7.784695709041462e-03, d1 = 3.224671290700398e-01, d2 = 2.445134137142996e+00,
                   d3 = 3.754408661907416e+00;
  const double q = std::sqrt(-2 * portable_log(p < 1 - p ? p : 1 - p));
  const double z = (((((c0 * q + c1) * q + c2) * q + c3) * q + c4) * q + c5) /
                   ((((d0 * q + d1) * q + d2) * q + d3) * q + 1);
  return p < 0.5 ? z : -z;
}

/// The inverse of the standard normal distribution function. REQUIRES: 0 < p < 1.
BRAID_HOST_DEVICE inline double quantile(double p) {
  return p < kQuantileTail || p > 1 - kQuantileTail ? quantile_tail(p) : quantile_centre(p);
}

inline constexpr double kBelowMinus2 = 0.022750131948179207;  // the distribution function at -2

}  // namespace braid::random
