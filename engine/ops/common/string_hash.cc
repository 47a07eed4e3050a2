#include "engine/ops/common/string_hash.h"

#include <bit>
#include <cstring>
#include <utility>

namespace braid {
namespace {

template <class T>
T load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
std::uint64_t load64(const char* at) { return load<std::uint64_t>(at); }
std::uint64_t load32(const char* at) { return load<std::uint32_t>(at); }

// ----------------------------------------------------------------------------------------------- FarmHash

constexpr std::uint64_t kPrime0 = 0xc3a5c85c97cb3127, kPrime1 = 0xb492b66fbe98f273,
                        kPrime2 = 0x9ae16a3b2f90404f;

std::uint64_t mixed(std::uint64_t x) { return x ^ x >> 47; }

std::uint64_t combined(std::uint64_t u, std::uint64_t v, std::uint64_t factor) {
  const std::uint64_t a = mixed((u ^ v) * factor);
  return mixed((v ^ a) * factor) * factor;
}

std::uint64_t up_to_16(const char* s, std::size_t n) {
  const std::uint64_t factor = kPrime2 + n * 2;
  if (n >= 8) {
    const std::uint64_t a = load64(s) + kPrime2, b = load64(s + n - 8);
    return combined(std::rotr(b, 37) * factor + a, (std::rotr(a, 25) + b) * factor, factor);
  }
  if (n >= 4) return combined(n + (load32(s) << 3), load32(s + n - 4), factor);
  if (n == 0) return kPrime2;
  const auto byte = [s](std::size_t at) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(s[at]));
  };
  const std::uint32_t y = byte(0) + (byte(n >> 1) << 8);
  const std::uint32_t z = static_cast<std::uint32_t>(n) + (byte(n - 1) << 2);
  return mixed(y * kPrime2 ^ z * kPrime0) * kPrime2;
}

std::uint64_t up_to_32(const char* s, std::size_t n) {
  const std::uint64_t factor = kPrime2 + n * 2;
  const std::uint64_t a = load64(s) * kPrime1, b = load64(s + 8);
  const std::uint64_t c = load64(s + n - 8) * factor, d = load64(s + n - 16) * kPrime2;
  return combined(std::rotr(a + b, 43) + std::rotr(c, 30) + d, a + std::rotr(b + kPrime2, 18) + c, factor);
}

std::uint64_t up_to_64(const char* s, std::size_t n) {
  const std::uint64_t factor = kPrime2 + n * 2;
  const std::uint64_t a = load64(s) * kPrime2, b = load64(s + 8);
  const std::uint64_t c = load64(s + n - 8) * factor, d = load64(s + n - 16) * kPrime2;
  const std::uint64_t y = std::rotr(a + b, 43) + std::rotr(c, 30) + d;
  const std::uint64_t z = combined(y, a + std::rotr(b + kPrime2, 18) + c, factor);
  const std::uint64_t e = load64(s + 16) * factor, f = load64(s + 24);
  const std::uint64_t g = (y + load64(s + n - 32)) * factor, h = (z + load64(s + n - 24)) * factor;
  return combined(std::rotr(e + f, 43) + std::rotr(g, 30) + h, e + std::rotr(f + a, 18) + g, factor);
}

struct Pair {
  std::uint64_t first = 0, second = 0;
};

Pair of_32_bytes(const char* s, std::uint64_t a, std::uint64_t b) {
  const std::uint64_t z = load64(s + 24);
  a += load64(s);
  b = std::rotr(b + a + z, 21);
  const std::uint64_t c = a;
  a += load64(s + 8) + load64(s + 16);
  b += std::rotr(a, 44);
  return {a + z, b + c};
}

/// The state of texts longer than 64 bytes.
struct Long {
  std::uint64_t x, y, z;
  Pair v, w;

  void take(const char* s, std::uint64_t factor, std::uint64_t nine) {
    x = std::rotr(x + y + v.first + load64(s + 8), 37) * factor;
    y = std::rotr(y + v.second + load64(s + 48), 42) * factor;
    x ^= w.second * nine;
    y += v.first * nine + load64(s + 40);
    z = std::rotr(z + w.first, 33) * factor;
    v = of_32_bytes(s, v.second * factor, x + w.first);
    w = of_32_bytes(s + 32, z + w.second, y + load64(s + 16));
    std::swap(z, x);
  }
};

std::uint64_t over_64(const char* s, std::size_t n) {
  constexpr std::uint64_t kSeed = 81;
  Long state{kSeed * kPrime2 + load64(s), kSeed * kPrime1 + 113, 0, {}, {}};
  state.z = mixed(state.y * kPrime2 + 113) * kPrime2;
  const char* end = s + (n - 1) / 64 * 64;
  const char* last = end + ((n - 1) & 63) - 63;
  for (; s != end; s += 64) state.take(s, kPrime1, 1);
  const std::uint64_t factor = kPrime1 + ((state.z & 0xff) << 1);
  state.w.first += (n - 1) & 63;
  state.v.first += state.w.first;
  state.w.first += state.v.first;
  state.take(last, factor, 9);
  return combined(combined(state.v.first, state.w.first, factor) + mixed(state.y) * kPrime0 + state.z,
                  combined(state.v.second, state.w.second, factor) + state.x, factor);
}

// ----------------------------------------------------------------------------------------------- SipHash

struct Sip {
  std::uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  void take(std::uint64_t word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  }
};

/// The last n < 8 bytes as a number.
std::uint64_t tail(const char* s, std::size_t n) {
  std::uint64_t word = 0;
  std::memcpy(&word, s, n);
  return word;
}

}  // namespace

std::uint64_t farm_fingerprint64(std::string_view text) {
  const char* s = text.data();
  const std::size_t n = text.size();
  return n <= 16 ? up_to_16(s, n) : n <= 32 ? up_to_32(s, n) : n <= 64 ? up_to_64(s, n) : over_64(s, n);
}

std::uint64_t murmur_hash64(std::string_view text, std::uint64_t seed) {
  constexpr std::uint64_t kFactor = 0xc6a4a7935bd1e995;
  const char* s = text.data();
  std::size_t n = text.size();
  std::uint64_t h = seed ^ n * kFactor;
  for (; n >= 8; n -= 8, s += 8) {
    const std::uint64_t k = mixed(load64(s) * kFactor) * kFactor;
    h = (h ^ k) * kFactor;
  }
  if (n > 0) h = (h ^ tail(s, n)) * kFactor;
  return mixed(mixed(h) * kFactor);
}

std::uint64_t sip_hash64(std::string_view text, std::uint64_t key0, std::uint64_t key1) {
  Sip sip{key0 ^ 0x736f6d6570736575, key1 ^ 0x646f72616e646f6d, key0 ^ 0x6c7967656e657261,
          key1 ^ 0x7465646279746573};
  const char* s = text.data();
  std::size_t n = text.size();
  for (; n >= 8; n -= 8, s += 8) sip.take(load64(s));
  sip.take(tail(s, n) | static_cast<std::uint64_t>(text.size()) << 56);
  sip.v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) sip.round();
  return sip.v0 ^ sip.v1 ^ sip.v2 ^ sip.v3;
}

}  // namespace braid
