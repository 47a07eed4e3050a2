// The codes of 8 bits that braid.ApplyAdam8Bit keeps moments in: dynamic tree quantisation, in blocks with a
// scale each (Dettmers, Lewis, Shleifer, Zettlemoyer: 8-bit Optimizers via Block-wise Quantization, 2022,
// sections 1.3 and 2; the data type is that of Dettmers: 8-Bit Approximations for Parallelism in Deep
// Learning, 2016).
//
// A code stands for a share of its block's largest magnitude. The exponent is of ten, e = 0 to 6, and a code
// with exponent e has so many bits of fraction that all are used:
//   signed    0, 1, and +- 10^(e - 6) times the middles of 2^e equal parts of [0.1, 1]
//   unsigned  0, 1, and    10^(e - 6) times the middles of 2^(e + 1) equal parts of [0.1, 1]
// which is 256 values each. Codes count the values in ascending order from 0 on, whose code is 0; those of
// negative values wrap around, as those of an unsigned byte do. A number gets the code of the nearest value,
// the larger one of two that are as near. Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "engine/ops/common/kernel_util.h"

namespace braid::adam_codes {

inline constexpr std::int64_t kBlock = 256;  // elements that share a scale
inline constexpr int kCodes = 256;

/// Of shares in ascending order, and the middles between neighbours.
struct Table {
  float values[kCodes];
  float middles[kCodes - 1];
  int zero;  // where 0 is
};

constexpr Table make_table(bool is_signed) {
  std::array<double, kCodes> values{};
  int count = 0;
  values[static_cast<std::size_t>(count++)] = 0;
  values[static_cast<std::size_t>(count++)] = 1;
  double power = 1e-6;
  for (int e = 0; e < 7; ++e, power *= 10) {
    const int parts = 1 << (is_signed ? e : e + 1);
    for (int p = 0; p < parts; ++p) {
      const double value = power * (0.1 + 0.9 * (p + 0.5) / parts);
      values[static_cast<std::size_t>(count++)] = value;
      if (is_signed) values[static_cast<std::size_t>(count++)] = -value;
    }
  }
  std::sort(values.begin(), values.end());
  Table table{};
  for (int i = 0; i < kCodes; ++i) {
    table.values[i] = static_cast<float>(values[static_cast<std::size_t>(i)]);
    if (values[static_cast<std::size_t>(i)] == 0) table.zero = i;
  }
  for (int i = 0; i + 1 < kCodes; ++i) table.middles[i] = (table.values[i] + table.values[i + 1]) / 2;
  return table;
}

inline constexpr Table kSigned = make_table(true), kUnsigned = make_table(false);

BRAID_INLINE float value_of(const Table& table, std::uint8_t code) {
  return table.values[static_cast<std::uint8_t>(code + table.zero)];
}

/// Of a share in [-1, 1].
BRAID_INLINE std::uint8_t code_of(const Table& table, float share) {
  int below = 0;  // middles that are not above the share
  for (int step = kCodes / 2; step > 0; step /= 2)
    if (share >= table.middles[below + step - 1]) below += step;
  return static_cast<std::uint8_t>(below - table.zero);
}

}  // namespace braid::adam_codes
