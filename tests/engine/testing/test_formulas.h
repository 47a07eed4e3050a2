// The arithmetic of the test ops, which all devices do alike.
#pragma once

#include <cstdint>

namespace braid::testing {

constexpr std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15ULL;
  return x ^ (x >> 29);
}

/// What a digest of some inputs begins with, and how an element of input `i` changes it.
constexpr std::uint64_t digest_of_nothing(std::uint64_t salt) { return scramble(salt + 1); }
constexpr std::uint64_t digest_with(std::uint64_t digest, std::uint64_t element, std::uint64_t i) {
  return scramble(digest + element + i);
}

}  // namespace braid::testing
