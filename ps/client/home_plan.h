// Which rows of one table are in its variable at their home, and where. What no step has used lately makes
// room: a hand goes round over the slots, spares once what was used since it last came by, and takes the
// next. So a row that is here costs its place and its slot's entry, two cache misses, and no list is kept.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ps/client/cache_plan.h"

namespace braid::ps {

class HomePlan {
 public:
  static constexpr std::uint32_t kNone = CachePlan::kNone;
  /// A row that is here, or was, and the step that used it last.
  struct Row {
    int table = 0;
    std::int64_t key = 0;
    std::uint64_t used = 0;
  };

  /// REQUIRES: 0 < slots < 2^31.
  HomePlan(int table, std::int64_t slots);

  std::int64_t slots() const { return static_cast<std::int64_t>(slots_.size()); }
  std::int64_t used() const { return used_; }
  /// REQUIRES: slot < used().
  Row row(std::uint32_t slot) const { return {table_, slots_[slot].key, slots_[slot].step}; }

  /// Ask for what find() will look at: where it looks first, then what it finds there.
  void prefetch(std::int64_t key) const { __builtin_prefetch(&places_[home(key)]); }
  void prefetch_slot(std::int64_t key) const {
    if (const Place& place = places_[home(key)]; place.slot != kNone)
      __builtin_prefetch(&slots_[place.slot], 1);
  }

  /// A step is planned: rows that it names keep their slots until the next.
  void begin(std::uint64_t step);
  /// The row's slot, or kNone.
  std::uint32_t find(std::int64_t key);
  /// A slot for a row that has none. `gone`: set where it was another row's. kNone: the step has them all.
  std::uint32_t add(std::int64_t key, std::optional<Row>* gone);

  const CacheCounts& counts() const { return counts_; }

 private:
  struct Place {
    std::int64_t key = 0;
    std::uint32_t slot = kNone;
  };
  struct Slot {
    std::int64_t key = 0;
    std::uint64_t step = 0;   // that used it last
    std::uint32_t turn = 0;   // the same, as begin() counts
    std::uint32_t spare = 0;  // 1: used since the hand came by
  };

  std::size_t home(std::int64_t key) const { return key_hash(key) & (places_.size() - 1); }
  std::size_t place_of(std::int64_t key) const;
  std::uint32_t take_slot(std::optional<Row>* gone);
  void erase(std::size_t at);

  int table_;
  std::vector<Slot> slots_;
  std::vector<Place> places_;  // by hash, linear probing; at most half are taken
  std::int64_t used_ = 0;
  std::size_t hand_ = 0;
  std::uint64_t step_ = 0;
  std::uint32_t turn_ = 0;
  CacheCounts counts_;
};

}  // namespace braid::ps
