// A fixed permutation of the rows of a table, and from it which rank holds which row: place p = shuffle(row),
// rank p mod ranks, row p / ranks of that rank's part. Every rank holds rows / ranks rows, one more at most,
// whatever the ids look like; neighbours and multiples of a number are spread as by a hash; the permutation
// does not know the number of ranks.
//
// It is the finaliser of SplitMix64 (Steele et al., OOPSLA'14), which spreads the keys of parameter servers,
// on as many bits as a row's number has: xor with a shift to the right and products with odd numbers are
// permutations of b-bit numbers too. What leaves [0, rows) is shuffled again (cycle walking; Black & Rogaway
// 2002), less than twice on average. Part of the format of no file: checkpoints name rows. Thread rule: pure.
#pragma once

#include <bit>
#include <cstdint>

namespace braid {

class RowShuffle {
 public:
  /// REQUIRES: 0 <= rows < 2^62.
  constexpr explicit RowShuffle(std::int64_t rows)
      : rows_(static_cast<std::uint64_t>(rows)),
        bits_(rows <= 1 ? 1 : std::bit_width(static_cast<std::uint64_t>(rows - 1))),
        mask_((std::uint64_t{1} << bits_) - 1) {}

  /// REQUIRES: 0 <= row < rows.
  constexpr std::int64_t place_of(std::int64_t row) const {
    auto x = static_cast<std::uint64_t>(row);
    do x = mixed(x);
    while (x >= rows_);
    return static_cast<std::int64_t>(x);
  }
  /// The inverse.
  constexpr std::int64_t row_at(std::int64_t place) const {
    auto x = static_cast<std::uint64_t>(place);
    do x = unmixed(x);
    while (x >= rows_);
    return static_cast<std::int64_t>(x);
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15U, kFirst = 0xbf58476d1ce4e5b9U,
                                 kSecond = 0x94d049bb133111ebU;
  static constexpr std::uint64_t inverse_of(std::uint64_t odd) {
    std::uint64_t inverse = odd;  // Newton: each turn doubles the right bits, of which odd itself has 3
    for (int turn = 0; turn < 5; ++turn) inverse *= 2 - odd * inverse;
    return inverse;
  }

  constexpr int shift() const { return (bits_ + 1) / 2; }
  constexpr std::uint64_t mixed(std::uint64_t x) const {
    x = (x + kStep) & mask_;
    x = ((x ^ (x >> shift())) * kFirst) & mask_;
    x = ((x ^ (x >> shift())) * kSecond) & mask_;
    return x ^ (x >> shift());
  }
  /// The shift is at least half of the bits, so that doing it again undoes it.
  constexpr std::uint64_t unmixed(std::uint64_t x) const {
    x ^= x >> shift();
    x = (x * inverse_of(kSecond)) & mask_;
    x ^= x >> shift();
    x = (x * inverse_of(kFirst)) & mask_;
    x ^= x >> shift();
    return (x - kStep) & mask_;
  }

  std::uint64_t rows_;
  int bits_;
  std::uint64_t mask_;
};

}  // namespace braid
