// Locking a mutex that is never held for long: a thread that finds it taken tries again for about a
// microsecond before it sleeps, as waking it would take many times what it waits for. Thread rule: any
// thread.
#pragma once

#include <mutex>

#include "base/cpu.h"

namespace braid {

/// The lock, held.
template <class Mutex>
std::unique_lock<Mutex> brief_lock(Mutex& mutex) {
  constexpr int kTries = 100;
  std::unique_lock lock(mutex, std::try_to_lock);
  for (int i = 0; i < kTries && !lock.owns_lock(); ++i) {
    cpu_relax();
    lock.try_lock();
  }
  if (!lock.owns_lock()) lock.lock();
  return lock;
}

}  // namespace braid
