// Waiting for what another thread or process does, without a guess of how long it takes.
#pragma once

#include <chrono>
#include <thread>

namespace braid {

/// Looks until `condition()` holds; false when it does not within `limit`, in which a machine that works gets
/// to everything, however busy it is.
template <class Condition>
bool eventually(Condition condition, std::chrono::seconds limit = std::chrono::seconds(60)) {
  for (const auto end = std::chrono::steady_clock::now() + limit; std::chrono::steady_clock::now() < end;
       std::this_thread::sleep_for(std::chrono::milliseconds(1)))
    if (condition()) return true;
  return condition();
}

}  // namespace braid
