// An open-addressing hash table from int64 keys to row numbers, with linear probing. Beside each key lies a
// stamp of its owner's, since whoever finds a key has its slot in the cache. Every int64 is a key: a slot is
// empty by its row, not by a reserved key. It grows without a long stop: the larger table is filled a few
// slots at a time by the insertions that follow, and look-ups try both until then. Keys are never removed.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ps/table/zeroed_block.h"

namespace braid::ps {

class KeyIndex {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffU;

  KeyIndex();

  std::size_t size() const { return size_; }

  /// The row of `key`, kNone when there is none. `hash` is key_hash(key).
  std::uint32_t find(std::int64_t key, std::uint64_t hash) const {
    const Slot* slot = slot_of(key, hash);
    return slot != nullptr ? slot->row_plus_one - 1 : kNone;
  }
  /// The same, and the key's stamp becomes `stamp`, unless it is ahead of that: of two stamps the one that
  /// less than 2^31 steps lead to from the other. `before`, if given: what it was.
  std::uint32_t find_and_stamp(std::int64_t key, std::uint64_t hash, std::uint32_t stamp,
                               std::uint32_t* before = nullptr) {
    Slot* slot = slot_of(key, hash);
    if (slot == nullptr) return kNone;
    if (before != nullptr) *before = slot->stamp;
    if (static_cast<std::int32_t>(stamp - slot->stamp) > 0) slot->stamp = stamp;
    return slot->row_plus_one - 1;
  }
  /// REQUIRES: `key` has a row.
  std::uint32_t stamp(std::int64_t key, std::uint64_t hash) const { return slot_of(key, hash)->stamp; }

  /// REQUIRES: `key` has no row; row < kNone.
  void insert(std::int64_t key, std::uint64_t hash, std::uint32_t row, std::uint32_t stamp);

  /// Brings the slot of `hash` into the cache, ahead of a look-up.
  void prefetch(std::uint64_t hash) const { __builtin_prefetch(&current_.slots[hash & current_.mask], 1); }

 private:
  struct Slot {
    std::int64_t key;
    std::uint32_t row_plus_one;  // 0: empty
    std::uint32_t stamp;
  };
  struct Table {
    ZeroedBlock block;
    Slot* slots = nullptr;
    std::size_t mask = 0;
  };

  static Table make_table(std::size_t capacity);
  static Slot* look_up(const Table& table, std::int64_t key, std::uint64_t hash) {
    for (std::size_t at = hash & table.mask;; at = (at + 1) & table.mask) {
      Slot& slot = table.slots[at];
      if (slot.row_plus_one == 0) return nullptr;
      if (slot.key == key) return &slot;
    }
  }
  Slot* slot_of(std::int64_t key, std::uint64_t hash) const {
    Slot* slot = look_up(current_, key, hash);
    return slot == nullptr && old_.slots != nullptr ? look_up(old_, key, hash) : slot;
  }
  static void place(const Table& table, const Slot& slot, std::uint64_t hash);
  void migrate(std::size_t slots);

  Table current_;
  Table old_;                 // being emptied into current_; no slots when there is no growth under way
  std::size_t old_next_ = 0;  // old slots before this one are in current_
  std::size_t size_ = 0;
};

}  // namespace braid::ps
