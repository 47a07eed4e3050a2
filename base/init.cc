#include "base/init.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/philox.h"

// Compiled with -O3 -ffp-contract=off (base/CMakeLists.txt): only IEEE additions, multiplications, divisions
// and square roots, so the same bits on every machine and for every split of a run.

namespace braid {
namespace {

constexpr std::size_t kLanes =
    32;  // Philox blocks computed side by side; fewer would be unrolled, not made vectors
constexpr std::size_t kChunk = 8 * kLanes;  // elements of one pass through the stack buffers

std::uint64_t mix(std::uint64_t x) {  // the finaliser of SplitMix64 (Steele, Lea, Flood 2014)
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// out[4 * l + j] = word j of block first_block + l, for kLanes blocks.
void philox_lanes(RngKey key, std::uint64_t first_block, std::uint32_t* __restrict out) {
  std::uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (std::size_t l = 0; l < kLanes; ++l) {
    const std::uint64_t block = first_block + l;
    c0[l] = static_cast<std::uint32_t>(block);
    c1[l] = static_cast<std::uint32_t>(block >> 32);
    c2[l] = c3[l] = 0;
  }
  std::uint32_t k0 = static_cast<std::uint32_t>(key.value), k1 = static_cast<std::uint32_t>(key.value >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (std::size_t l = 0; l < kLanes; ++l) {
      const std::uint64_t p0 = std::uint64_t{kPhiloxMultiplier0} * c0[l];
      const std::uint64_t p1 = std::uint64_t{kPhiloxMultiplier1} * c2[l];
      c0[l] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[l] ^ k0;
      c1[l] = static_cast<std::uint32_t>(p1);
      c2[l] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[l] ^ k1;
      c3[l] = static_cast<std::uint32_t>(p0);
    }
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  for (std::size_t l = 0; l < kLanes; ++l) {
    out[4 * l] = c0[l];
    out[4 * l + 1] = c1[l];
    out[4 * l + 2] = c2[l];
    out[4 * l + 3] = c3[l];
  }
}

/// The same for one block: for short runs, such as a row of a table.
void philox_block(RngKey key, std::uint64_t block, std::uint32_t* out) {
  const PhiloxCounter words =
      philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0},
                 {static_cast<std::uint32_t>(key.value), static_cast<std::uint32_t>(key.value >> 32)});
  std::copy(words.begin(), words.end(), out);
}

/// Calls sink(offset, bits, n) for consecutive pieces of [first, first + count), n <= kChunk.
template <class Sink>
void for_each_chunk(RngKey key, std::uint64_t first, std::size_t count, Sink sink) {
  std::uint32_t bits[kChunk + 4];
  for (std::size_t done = 0; done < count;) {
    const std::uint64_t element = first + done;
    const std::size_t skip = element % 4;
    const std::size_t n = std::min(count - done, kChunk - skip);
    std::size_t made = 0;
    for (; made + kLanes < skip + n; made += 4 * kLanes)
      philox_lanes(key, element / 4 + made / 4, bits + made);
    for (; made < skip + n; made += 4) philox_block(key, element / 4 + made / 4, bits + made);
    sink(done, bits + skip, n);
    done += n;
  }
}

/// The middle of the uniform's 2^-24 wide cell, so never 0 and never 1. Exact in double.
double cell_middle(std::uint32_t bits) { return (static_cast<std::int32_t>(bits >> 8) + 0.5) * 0x1p-24; }

/// Natural logarithm for 0 < x < 1, normal numbers; relative error below 1e-14. Not std::log, whose last bit
/// depends on the machine. log(m 2^e) = e ln 2 + 2 artanh((m - 1) / (m + 1)), sqrt(1/2) <= m < sqrt(2).
double portable_log(double x) {
  std::uint64_t raw = std::bit_cast<std::uint64_t>(x);
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
constexpr double kA[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                         1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
constexpr double kB[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                         6.680131188771972e+01, -1.328068155288572e+01};
constexpr double kC[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                         -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
constexpr double kD[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                         3.754408661907416e+00};
constexpr double kTail = 0.02425;  // below it, and above 1 - kTail, the tail formula holds

double quantile_centre(double p) {
  const double q = p - 0.5, r = q * q;
  return q * (((((kA[0] * r + kA[1]) * r + kA[2]) * r + kA[3]) * r + kA[4]) * r + kA[5]) /
         (((((kB[0] * r + kB[1]) * r + kB[2]) * r + kB[3]) * r + kB[4]) * r + 1);
}

double quantile_tail(double p) {
  const double q = std::sqrt(-2 * portable_log(std::min(p, 1 - p)));
  const double z = (((((kC[0] * q + kC[1]) * q + kC[2]) * q + kC[3]) * q + kC[4]) * q + kC[5]) /
                   ((((kD[0] * q + kD[1]) * q + kD[2]) * q + kD[3]) * q + 1);
  return p < 0.5 ? z : -z;
}

/// out[k] = quantile of low + width * uniform. The centre runs in vectors over all; one element in twenty is
/// redone.
void fill_quantiles(RngKey key, std::uint64_t first, std::span<float> out, double low, double width) {
  for_each_chunk(key, first, out.size(),
                 [&](std::size_t offset, const std::uint32_t* __restrict bits, std::size_t n) {
                   float* __restrict to = out.data() + offset;
                   double p[kChunk];
                   for (std::size_t i = 0; i < n; ++i) p[i] = low + width * cell_middle(bits[i]);
                   for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<float>(quantile_centre(p[i]));
                   for (std::size_t i = 0; i < n; ++i)
                     if (p[i] < kTail || p[i] > 1 - kTail) to[i] = static_cast<float>(quantile_tail(p[i]));
                 });
}

}  // namespace

std::uint64_t stable_hash(std::string_view text) {
  std::uint64_t h = 0xCBF29CE484222325ULL;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001B3ULL;
  return mix(h);
}

RngKey make_rng_key(std::uint64_t seed, std::string_view name, std::uint64_t step) {
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ULL;
  return {mix(mix(mix(seed + kGolden) ^ stable_hash(name)) + kGolden * (step + 1))};
}

double normal_quantile(double p) {
  return p < kTail || p > 1 - kTail ? quantile_tail(p) : quantile_centre(p);
}

void fill_bits(RngKey key, std::uint64_t first, std::span<std::uint32_t> out) {
  for_each_chunk(key, first, out.size(), [&](std::size_t offset, const std::uint32_t* bits, std::size_t n) {
    std::copy_n(bits, n, out.data() + offset);
  });
}

void fill_uniform01(RngKey key, std::uint64_t first, std::span<float> out) {
  for_each_chunk(key, first, out.size(),
                 [&](std::size_t offset, const std::uint32_t* __restrict bits, std::size_t n) {
                   float* __restrict to = out.data() + offset;
                   for (std::size_t i = 0; i < n; ++i)
                     to[i] = static_cast<float>(static_cast<std::int32_t>(bits[i] >> 8)) * 0x1p-24F;
                 });
}

void fill_normal01(RngKey key, std::uint64_t first, std::span<float> out) {
  fill_quantiles(key, first, out, 0, 1);
}

void fill_truncated_normal01(RngKey key, std::uint64_t first, std::span<float> out) {
  constexpr double kBelowMinus2 = 0.022750131948179207;  // the distribution function at -2
  fill_quantiles(key, first, out, kBelowMinus2, 1 - 2 * kBelowMinus2);
}

void fill_initial(const InitSpec& spec, RngKey key, std::uint64_t first, std::span<float> out) {
  const float a = spec.a, b = spec.b;
  switch (spec.kind) {
    case InitKind::Zeros:
      std::fill(out.begin(), out.end(), 0.0F);
      return;
    case InitKind::Constant:
      std::fill(out.begin(), out.end(), a);
      return;
    case InitKind::Uniform: {
      fill_uniform01(key, first, out);
      const float width = b - a, last = a < b ? std::nextafter(b, a) : a;  // rounding must not reach `high`
      for (float& x : out) x = std::min(a + width * x, last);
      return;
    }
    case InitKind::Normal:
      fill_normal01(key, first, out);
      break;
    case InitKind::TruncatedNormal:
      fill_truncated_normal01(key, first, out);
      break;
  }
  for (float& x : out) x = a + b * x;
}

}  // namespace braid
