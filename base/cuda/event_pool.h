// Events for order that are taken for a while and used again: making one costs more than recording it. Thread
// rule: one thread at a time; take() uses the calling thread's current device.
#pragma once

#include <utility>
#include <vector>

#include "base/cuda/handles.h"

namespace braid::cuda {

class EventPool {
 public:
  /// One that nobody has, made where there is none.
  Event take() {
    if (spare_.empty()) return make_event();
    Event event = std::move(spare_.back());
    spare_.pop_back();
    return event;
  }
  /// REQUIRES: of this pool, and nobody waits for it any more.
  void give_back(Event event) { spare_.push_back(std::move(event)); }

 private:
  std::vector<Event> spare_;
};

}  // namespace braid::cuda
