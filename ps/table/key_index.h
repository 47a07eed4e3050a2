// An open-addressing hash table from int64 keys to row numbers, with linear probing. Every int64 is a key: a
// slot is empty by its row, not by a reserved key. It grows without a long stop: the larger table is filled a
// few slots at a time by the insertions that follow, and look-ups try both until then. Keys are never
// removed. Thread rule: one thread.
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
  std::uint32_t find(std::int64_t key, std::uint64_t hash) const;

  /// The row of `key`, after storing `next_row` for it when it has none. `inserted` says which.
  /// REQUIRES: next_row < kNone.
  std::uint32_t find_or_insert(std::int64_t key, std::uint64_t hash, std::uint32_t next_row, bool* inserted);

  /// Brings the slot of `hash` into the cache, ahead of a look-up.
  void prefetch(std::uint64_t hash) const { __builtin_prefetch(&current_.slots[hash & current_.mask]); }

 private:
  struct Slot {
    std::int64_t key;
    std::uint32_t row_plus_one;  // 0: empty
    std::uint32_t unused;
  };
  struct Table {
    ZeroedBlock block;
    Slot* slots = nullptr;
    std::size_t mask = 0;
  };

  static Table make_table(std::size_t capacity);
  static std::uint32_t look_up(const Table& table, std::int64_t key, std::uint64_t hash);
  static void place(const Table& table, std::int64_t key, std::uint64_t hash, std::uint32_t row_plus_one);
  void migrate(std::size_t slots);

  Table current_;
  Table old_;                 // being emptied into current_; no slots when there is no growth under way
  std::size_t old_next_ = 0;  // old slots before this one are in current_
  std::size_t size_ = 0;
};

}  // namespace braid::ps
