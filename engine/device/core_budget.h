// How many threads of the process's streams run or spin right now, against the cores that there are: spinning
// is free only while it takes no core from somebody's kernel. Where processes share a host, each counts with
// its share of the cores. Thread rule: any thread.
#pragma once

#include <algorithm>
#include <atomic>

#include "base/cpu.h"

namespace braid {

class CoreBudget {
 public:
  static void enter() { active().fetch_add(1, std::memory_order_relaxed); }
  static void leave() { active().fetch_sub(1, std::memory_order_relaxed); }
  /// `others`: threads that have not entered and need a core, too. REQUIRES: the caller has entered.
  static bool may_spin(int others = 0) {
    return active().load(std::memory_order_relaxed) + others <= cores().load(std::memory_order_relaxed);
  }
  /// This process is one of so many that are busy on this host. More than there are cores: nobody spins.
  static void share_with(int processes) {
    cores().store(usable_cores() / std::max(1, processes), std::memory_order_relaxed);
  }

 private:
  static std::atomic<int>& active() {
    static std::atomic<int> count{0};
    return count;
  }
  static std::atomic<int>& cores() {
    static std::atomic<int> count{usable_cores()};
    return count;
  }
};

}  // namespace braid
