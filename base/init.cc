#include "base/init.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "base/random_formulas.h"

// Compiled with -O3 -ffp-contract=off (base/CMakeLists.txt): only IEEE additions, multiplications, divisions
// and square roots, so the same bits on every machine and for every split of a run.

namespace braid {
namespace {

using namespace random;

constexpr std::size_t kLanes =
    32;  // Philox blocks computed side by side; fewer would be unrolled, not made vectors
constexpr std::size_t kChunk = 8 * kLanes;  // elements of one pass through the stack buffers

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
                     if (p[i] < kQuantileTail || p[i] > 1 - kQuantileTail)
                       to[i] = static_cast<float>(quantile_tail(p[i]));
                 });
}

}  // namespace

std::uint64_t stable_hash(std::string_view text) {
  std::uint64_t h = 0xCBF29CE484222325ULL;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001B3ULL;
  return mix(h);
}

RngKey make_rng_key(std::uint64_t seed, std::string_view name, std::uint64_t step) {
  return {key_value(seed, stable_hash(name), step)};
}

double normal_quantile(double p) { return quantile(p); }

void fill_bits(RngKey key, std::uint64_t first, std::span<std::uint32_t> out) {
  for_each_chunk(key, first, out.size(), [&](std::size_t offset, const std::uint32_t* bits, std::size_t n) {
    std::copy_n(bits, n, out.data() + offset);
  });
}

void fill_uniform01(RngKey key, std::uint64_t first, std::span<float> out) {
  for_each_chunk(key, first, out.size(),
                 [&](std::size_t offset, const std::uint32_t* __restrict bits, std::size_t n) {
                   float* __restrict to = out.data() + offset;
                   for (std::size_t i = 0; i < n; ++i) to[i] = uniform01(bits[i]);
                 });
}

void fill_normal01(RngKey key, std::uint64_t first, std::span<float> out) {
  fill_quantiles(key, first, out, 0, 1);
}

void fill_truncated_normal01(RngKey key, std::uint64_t first, std::span<float> out) {
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
