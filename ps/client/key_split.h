// Divides the keys of a request among the servers, and sends each key once. Rows are found again by position.
// Thread rule: pure function.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace braid::ps {

struct KeySplit {
  struct Part {
    std::vector<std::int64_t> keys;  // what travels to the server
    std::vector<std::uint32_t>
        positions;  // keys[i] is the caller's key at positions[i], its first occurrence
    std::vector<std::pair<std::uint32_t, std::uint32_t>>
        repeats;  // (caller's position, i) of the later ones, in order
  };
  /// One server and no repetitions: the caller's arrays travel as they are, and `parts` is empty.
  bool as_given = false;
  std::vector<Part> parts;  // by server
};

/// `unique`: no key occurs twice. REQUIRES: keys.size() < 2^31.
KeySplit split_keys(std::span<const std::int64_t> keys, int servers, bool unique);

}  // namespace braid::ps
