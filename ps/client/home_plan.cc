#include "ps/client/home_plan.h"

#include <bit>

namespace braid::ps {

HomePlan::HomePlan(int table, std::int64_t slots)
    : table_(table),
      slots_(static_cast<std::size_t>(slots)),
      places_(std::bit_ceil(2 * static_cast<std::size_t>(slots) + 1)) {}

void HomePlan::begin(std::uint64_t step) {
  step_ = step;
  ++turn_;
}

/// The place of the row, or the free one where it would be.
std::size_t HomePlan::place_of(std::int64_t key) const {
  std::size_t at = home(key);
  while (places_[at].slot != kNone && places_[at].key != key) at = (at + 1) & (places_.size() - 1);
  return at;
}

std::uint32_t HomePlan::find(std::int64_t key) {
  const std::uint32_t slot = places_[place_of(key)].slot;
  if (slot == kNone) return kNone;
  ++counts_.hits;
  Slot& its = slots_[slot];
  its.step = step_;
  its.turn = turn_;
  its.spare = 1;
  return slot;
}

std::uint32_t HomePlan::add(std::int64_t key, std::optional<Row>* gone) {
  ++counts_.misses;
  const std::uint32_t slot = take_slot(gone);
  if (slot == kNone) return kNone;
  places_[place_of(key)] = {key, slot};
  slots_[slot] = {key, step_, turn_, 0};
  return slot;
}

std::uint32_t HomePlan::take_slot(std::optional<Row>* gone) {
  if (used_ < slots()) return static_cast<std::uint32_t>(used_++);
  for (std::size_t looks = 0; looks <= 2 * slots_.size(); ++looks) {
    const std::size_t at = hand_;
    hand_ = at + 1 == slots_.size() ? 0 : at + 1;
    Slot& its = slots_[at];
    if (its.turn == turn_) continue;
    if (its.spare != 0) {
      its.spare = 0;
      continue;
    }
    ++counts_.evictions;
    *gone = row(static_cast<std::uint32_t>(at));
    erase(place_of(its.key));
    return static_cast<std::uint32_t>(at);
  }
  return kNone;
}

/// Rows behind the place that would have come there move up.
void HomePlan::erase(std::size_t at) {
  const std::size_t mask = places_.size() - 1;
  for (std::size_t next = (at + 1) & mask; places_[next].slot != kNone; next = (next + 1) & mask) {
    const std::size_t its = home(places_[next].key);
    if (((next - its) & mask) < ((next - at) & mask)) continue;
    places_[at] = places_[next];
    at = next;
  }
  places_[at].slot = kNone;
}

}  // namespace braid::ps
