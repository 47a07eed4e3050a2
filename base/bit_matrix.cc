#include "base/bit_matrix.h"

#include <algorithm>

namespace braid {
namespace {

/// Transposes a block of 64 x 64 bits in place, by swapping ever smaller quadrants (Warren, Hacker's Delight,
/// 7-3).
void transpose64(std::uint64_t* block) {
  std::uint64_t mask = 0x00000000FFFFFFFFULL;
  for (unsigned width = 32; width != 0; width >>= 1, mask ^= mask << width) {
    for (unsigned k = 0; k < 64; k = ((k | width) + 1) & ~width) {
      const std::uint64_t swap = ((block[k] >> width) ^ block[k | width]) & mask;
      block[k] ^= swap << width;
      block[k | width] ^= swap;
    }
  }
}

}  // namespace

void BitMatrix::fill() { std::fill(bits_.begin(), bits_.end(), ~std::uint64_t{0}); }

void BitMatrix::make_symmetric() {
  const auto load = [&](std::size_t rows, std::size_t column, std::uint64_t* block) {
    for (std::size_t k = 0; k < 64; ++k) block[k] = rows * 64 + k < size_ ? row(rows * 64 + k)[column] : 0;
  };
  const auto merge = [&](std::size_t rows, std::size_t column, const std::uint64_t* block) {
    for (std::size_t k = 0; k < 64 && rows * 64 + k < size_; ++k) row(rows * 64 + k)[column] |= block[k];
  };
  std::uint64_t a[64], b[64];
  for (std::size_t i = 0; i < words_; ++i) {
    for (std::size_t j = i; j < words_; ++j) {
      load(i, j, a);
      load(j, i, b);
      transpose64(a);
      transpose64(b);
      merge(j, i, a);
      merge(i, j, b);
    }
  }
}

}  // namespace braid
