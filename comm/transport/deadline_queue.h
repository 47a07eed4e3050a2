// The deadlines of calls in flight, soonest first. Calls that are done stay inside until they are met or
// outnumber the others, so that a call costs no search. Knows no clock and no lock: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/wait_context.h"

namespace braid::comm {

class DeadlineQueue {
 public:
  using TimePoint = WaitContext::Clock::time_point;

  void add(TimePoint deadline, std::uint64_t id) {
    entries_.push_back({deadline, id});
    std::push_heap(entries_.begin(), entries_.end(), later);
  }

  /// The soonest deadline of a call for which `alive(id)` holds; forgets the dead ones in front of it.
  template <class Alive>
  std::optional<TimePoint> next(Alive alive) {
    while (!entries_.empty() && !alive(entries_.front().id)) pop();
    if (entries_.empty()) return std::nullopt;
    return entries_.front().deadline;
  }

  /// A call that is due at `now`, removed.
  std::optional<std::uint64_t> take_due(TimePoint now) {
    if (entries_.empty() || entries_.front().deadline > now) return std::nullopt;
    auto id = entries_.front().id;
    pop();
    return id;
  }

  /// Throws the dead away once they are most of what is stored. `alive_count`: how many ids are alive.
  template <class Alive>
  void compact(std::size_t alive_count, Alive alive) {
    constexpr std::size_t kSlack = 256;
    if (entries_.size() < kSlack + 4 * alive_count) return;
    std::erase_if(entries_, [&](const Entry& entry) { return !alive(entry.id); });
    std::make_heap(entries_.begin(), entries_.end(), later);
  }

 private:
  struct Entry {
    TimePoint deadline;
    std::uint64_t id;
  };
  static bool later(const Entry& a, const Entry& b) { return a.deadline > b.deadline; }
  void pop() {
    std::pop_heap(entries_.begin(), entries_.end(), later);
    entries_.pop_back();
  }

  std::vector<Entry> entries_;  // a heap
};

}  // namespace braid::comm
