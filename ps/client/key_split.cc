#include "ps/client/key_split.h"

#include <bit>

#include "ps/table_set.h"

namespace braid::ps {
namespace {

/// Positions by key, for one request: open addressing at most half full.
class FirstPositions {
 public:
  FirstPositions(std::span<const std::int64_t> keys)
      : keys_(keys), slots_(std::bit_ceil(2 * keys.size() + 1)), mask_(slots_.size() - 1) {}

  /// The first position that was offered with this position's key.
  std::uint32_t offer(std::uint32_t position, std::uint64_t hash) {
    for (std::size_t at = hash & mask_;; at = (at + 1) & mask_) {
      if (slots_[at] == 0) {
        slots_[at] = position + 1;
        return position;
      }
      if (keys_[slots_[at] - 1] == keys_[position]) return slots_[at] - 1;
    }
  }

 private:
  std::span<const std::int64_t> keys_;
  std::vector<std::uint32_t> slots_;  // position + 1; 0: empty
  std::size_t mask_;
};

bool has_repeats(std::span<const std::int64_t> keys) {
  FirstPositions first(keys);
  for (std::uint32_t i = 0; i < keys.size(); ++i)
    if (first.offer(i, key_hash(keys[i])) != i) return true;
  return false;
}

}  // namespace

KeySplit split_keys(std::span<const std::int64_t> keys, int servers, bool unique) {
  KeySplit split;
  if (servers == 1 && (unique || !has_repeats(keys))) {
    split.as_given = true;
    return split;
  }
  split.parts.resize(static_cast<std::size_t>(servers));
  if (unique) {
    for (std::uint32_t i = 0; i < keys.size(); ++i) {
      auto& part = split.parts[static_cast<std::size_t>(server_of_hash(key_hash(keys[i]), servers))];
      part.keys.push_back(keys[i]);
      part.positions.push_back(i);
    }
    return split;
  }
  FirstPositions first(keys);
  std::vector<std::uint32_t> row_of(keys.size());  // of first positions: the row in their part
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    const std::uint64_t hash = key_hash(keys[i]);
    auto& part = split.parts[static_cast<std::size_t>(server_of_hash(hash, servers))];
    const std::uint32_t original = first.offer(i, hash);
    if (original != i) {
      part.repeats.emplace_back(i, row_of[original]);
      continue;
    }
    row_of[i] = static_cast<std::uint32_t>(part.keys.size());
    part.keys.push_back(keys[i]);
    part.positions.push_back(i);
  }
  return split;
}

}  // namespace braid::ps
