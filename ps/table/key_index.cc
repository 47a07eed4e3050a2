#include "ps/table/key_index.h"

#include <algorithm>
#include <utility>

#include "ps/table_set.h"

namespace braid::ps {
namespace {

constexpr std::size_t kFirstCapacity = 64;
// An insertion moves this many old slots. Growth starts at 5/8 load and doubles, so the move ends long before
// the next.
constexpr std::size_t kMigrateSlots = 16;

}  // namespace

KeyIndex::KeyIndex() : current_(make_table(kFirstCapacity)) {}

KeyIndex::Table KeyIndex::make_table(std::size_t capacity) {
  Table table;
  table.block = ZeroedBlock(capacity * sizeof(Slot));
  table.slots = reinterpret_cast<Slot*>(table.block.data());
  table.mask = capacity - 1;
  return table;
}

void KeyIndex::place(const Table& table, const Slot& slot, std::uint64_t hash) {
  std::size_t at = hash & table.mask;
  while (table.slots[at].row_plus_one != 0) at = (at + 1) & table.mask;
  table.slots[at] = slot;
}

void KeyIndex::migrate(std::size_t slots) {
  const std::size_t end = std::min(old_next_ + slots, old_.mask + 1);
  for (; old_next_ < end; ++old_next_) {
    const Slot& slot = old_.slots[old_next_];
    if (slot.row_plus_one != 0) place(current_, slot, key_hash(slot.key));
  }
  if (old_next_ > old_.mask) old_ = Table();
}

void KeyIndex::insert(std::int64_t key, std::uint64_t hash, std::uint32_t row, std::uint32_t stamp) {
  if (old_.slots) migrate(kMigrateSlots);
  const std::size_t capacity = current_.mask + 1;
  if (!old_.slots && (size_ + 1) * 8 > capacity * 5) {
    Table larger = make_table(capacity * 2);
    old_ = std::move(current_);
    current_ = std::move(larger);
    old_next_ = 0;
  }
  place(current_, {key, row + 1, stamp}, hash);
  ++size_;
}

}  // namespace braid::ps
