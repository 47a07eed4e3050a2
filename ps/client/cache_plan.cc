#include "ps/client/cache_plan.h"

#include <algorithm>
#include <bit>

namespace braid::ps {

void add(CacheCounts& sum, const CacheCounts& its) {
  sum.hits += its.hits;
  sum.misses += its.misses;
  sum.repairs += its.repairs;
  sum.expired += its.expired;
  sum.evictions += its.evictions;
  sum.uncached += its.uncached;
  sum.largest_age = std::max(sum.largest_age, its.largest_age);
}

CachePlan::CachePlan(std::int64_t slots, std::optional<std::uint64_t> most_age)
    : most_age_(most_age),
      entries_(static_cast<std::size_t>(slots)),
      places_(std::bit_ceil(2 * static_cast<std::size_t>(slots) + 1), kNone) {}

/// The place of the row, or the free one where it would be.
std::size_t CachePlan::find(int table, std::int64_t key) const {
  std::size_t at = home(table, key);
  while (places_[at] != kNone) {
    const Entry& entry = entries_[places_[at]];
    if (entry.key == key && entry.table == table) break;
    at = (at + 1) & (places_.size() - 1);
  }
  return at;
}

CachePlan::Place CachePlan::use(int table, std::int64_t key, std::uint64_t step) {
  std::size_t at = find(table, key);
  Place place;
  place.slot = places_[at];
  if (place.slot != kNone) {
    Entry& entry = entries_[place.slot];
    const std::uint64_t age = step - entry.pulled;
    place.hit = !most_age_ || age <= *most_age_;
    if (place.hit) {
      ++counts_.hits;
      place.known = static_cast<std::uint32_t>(entry.used) + 1;
      if (most_age_) counts_.largest_age = std::max(counts_.largest_age, age);
    } else {
      ++counts_.misses;
      ++counts_.expired;
      entry.pulled = step;
    }
    unlink(place.slot);
  } else {
    ++counts_.misses;
    place.slot = take_slot();
    if (place.slot == kNone) {
      ++counts_.uncached;
      return place;
    }
    at = find(table, key);  // a row that went may have made room before it
    places_[at] = place.slot;
    Entry& entry = entries_[place.slot];
    entry.key = key;
    entry.table = table;
    entry.pulled = step;
  }
  Entry& entry = entries_[place.slot];
  entry.used = step;
  std::atomic_ref(entry.holders).fetch_add(1, std::memory_order_relaxed);
  link_newest(place.slot);
  return place;
}

/// A slot of no row; kNone: all are held. What is held was used last, so the oldest is free or none is.
std::uint32_t CachePlan::take_slot() {
  if (used_ < slots()) return static_cast<std::uint32_t>(used_++);
  const std::uint32_t slot = oldest_;
  if (std::atomic_ref(entries_[slot].holders).load(std::memory_order_acquire) > 0) return kNone;
  ++counts_.evictions;
  erase(find(entries_[slot].table, entries_[slot].key));
  unlink(slot);
  return slot;
}

/// Rows behind the place that would have come there move up.
void CachePlan::erase(std::size_t at) {
  const std::size_t mask = places_.size() - 1;
  for (std::size_t next = (at + 1) & mask; places_[next] != kNone; next = (next + 1) & mask) {
    const Entry& entry = entries_[places_[next]];
    const std::size_t its = home(entry.table, entry.key);
    if (((next - its) & mask) < ((next - at) & mask)) continue;
    places_[at] = places_[next];
    at = next;
  }
  places_[at] = kNone;
}

void CachePlan::unlink(std::uint32_t slot) {
  Entry& entry = entries_[slot];
  (entry.newer == kNone ? newest_ : entries_[entry.newer].older) = entry.older;
  (entry.older == kNone ? oldest_ : entries_[entry.older].newer) = entry.newer;
}

void CachePlan::link_newest(std::uint32_t slot) {
  Entry& entry = entries_[slot];
  entry.newer = kNone;
  entry.older = newest_;
  (newest_ == kNone ? oldest_ : entries_[newest_].newer) = slot;
  newest_ = slot;
}

}  // namespace braid::ps
