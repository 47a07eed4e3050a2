#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

// Inside this file a "state" is the CRC register without the inversions at both ends; it is linear over
// GF(2): state(A B) = shift(state(A), length of B) xor state(B) from 0.

namespace braid {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // 0x1EDC6F41 with its bits reversed

using ByteTable = std::array<std::uint32_t, 256>;

constexpr ByteTable make_byte_table() {
  ByteTable table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) ? kPolynomial : 0);
    table[byte] = state;
  }
  return table;
}

/// kSlices[k][b]: the state after byte b and k zero bytes.
constexpr std::array<ByteTable, 8> make_slices() {
  std::array<ByteTable, 8> slices{make_byte_table()};
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t b = 0; b < 256; ++b)
      slices[k][b] = (slices[k - 1][b] >> 8) ^ slices[0][slices[k - 1][b] & 0xFF];
  return slices;
}

constexpr auto kSlices = make_slices();

std::uint64_t load64(const std::byte* p) {
  std::uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

std::uint32_t state_portable(std::uint32_t state, const std::byte* p, std::size_t n) {
  for (; n >= 8; p += 8, n -= 8) {
    const std::uint64_t x = load64(p) ^ state;
    state = kSlices[7][x & 0xFF] ^ kSlices[6][x >> 8 & 0xFF] ^ kSlices[5][x >> 16 & 0xFF] ^
            kSlices[4][x >> 24 & 0xFF] ^ kSlices[3][x >> 32 & 0xFF] ^ kSlices[2][x >> 40 & 0xFF] ^
            kSlices[1][x >> 48 & 0xFF] ^ kSlices[0][x >> 56];
  }
  for (; n > 0; ++p, --n)
    state = (state >> 8) ^ kSlices[0][(state ^ std::to_integer<std::uint32_t>(*p)) & 0xFF];
  return state;
}

#if defined(__x86_64__)

/// What `length` zero bytes make of a state, as four tables of its bytes.
class ZeroShift {
 public:
  constexpr explicit ZeroShift(std::size_t length) : table_{} {
    std::array<std::uint32_t, 32> image{};  // of each bit of the state
    for (std::size_t bit = 0; bit < 32; ++bit) {
      std::uint32_t state = std::uint32_t{1} << bit;
      for (std::size_t i = 0; i < length; ++i) state = (state >> 8) ^ kSlices[0][state & 0xFF];
      image[bit] = state;
    }
    for (std::size_t k = 0; k < 4; ++k)
      for (std::size_t b = 0; b < 256; ++b)
        for (std::size_t bit = 0; bit < 8; ++bit)
          if (b >> bit & 1) table_[k][b] ^= image[8 * k + bit];
  }
  std::uint32_t operator()(std::uint32_t s) const {
    return table_[0][s & 0xFF] ^ table_[1][s >> 8 & 0xFF] ^ table_[2][s >> 16 & 0xFF] ^ table_[3][s >> 24];
  }

 private:
  std::array<ByteTable, 4> table_;
};

/// The crc32 instruction has a latency of three cycles and a throughput of one, so three streams keep it
/// busy. Takes as many whole groups of three stretches of kStretch bytes as there are.
template <std::size_t kStretch>
__attribute__((target("sse4.2"))) std::uint32_t state_three_streams(std::uint32_t state, const std::byte*& p,
                                                                    std::size_t& n) {
  static const ZeroShift shift(kStretch);
  std::uint64_t a = state;
  for (; n >= 3 * kStretch; p += 3 * kStretch, n -= 3 * kStretch) {
    std::uint64_t b = 0, c = 0;
    for (std::size_t i = 0; i < kStretch; i += 8) {
      a = _mm_crc32_u64(a, load64(p + i));
      b = _mm_crc32_u64(b, load64(p + kStretch + i));
      c = _mm_crc32_u64(c, load64(p + 2 * kStretch + i));
    }
    a = shift(static_cast<std::uint32_t>(a)) ^ b;
    a = shift(static_cast<std::uint32_t>(a)) ^ c;
  }
  return static_cast<std::uint32_t>(a);
}

__attribute__((target("sse4.2"))) std::uint32_t state_sse42(std::uint32_t state, const std::byte* p,
                                                            std::size_t n) {
  if (n >= 3 * 4096) state = state_three_streams<4096>(state, p, n);
  if (n >= 3 * 256) state = state_three_streams<256>(state, p, n);
  std::uint64_t s = state;
  for (; n >= 8; p += 8, n -= 8) s = _mm_crc32_u64(s, load64(p));
  for (; n > 0; ++p, --n) s = _mm_crc32_u8(static_cast<std::uint32_t>(s), std::to_integer<unsigned char>(*p));
  return static_cast<std::uint32_t>(s);
}

bool has_sse42() {
  static const bool has = __builtin_cpu_supports("sse4.2");
  return has;
}

#else

bool has_sse42() { return false; }
std::uint32_t state_sse42(std::uint32_t state, const std::byte* p, std::size_t n) {
  return state_portable(state, p, n);
}

#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t seed) {
  return has_sse42() ? ~state_sse42(~seed, data.data(), data.size()) : crc32c_portable(data, seed);
}

std::uint32_t crc32c_portable(std::span<const std::byte> data, std::uint32_t seed) {
  return ~state_portable(~seed, data.data(), data.size());
}

const char* crc32c_implementation() { return has_sse42() ? "sse4.2" : "tables"; }

}  // namespace braid
