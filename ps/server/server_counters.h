// What a server counts, and how it is named in metrics and in statistics.
// Thread rule: safe from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace braid {
class MetricsRegistry;
}

namespace braid::ps {

enum class Count : std::size_t {
  PushesApplied,    // taken: applied (ASP) or part of a round (BSP)
  PushesDuplicate,  // taken before
  PushesDropped,    // answered as dropped, for any reason
  PushesStale,      // of those, because their step is long over
  RequestsRefused,  // answered with an error
  Pulls,
  PullsParked,  // had to wait for a round or for the initial values
  Rounds,       // rounds applied, counted for each table
  Examples,     // behind the pushes that were taken
  RowsPushed,
  RowsPulled,
  RowsRepaired,  // of those that were pulled ahead
  RowsChanged,   // of those that workers have, sent since others had changed them
  RowsMade,
  BytesReceived,  // payloads of pushes and initial values
  BytesSent,      // payloads of pulls
  kCount
};

class ServerCounters {
 public:
  void add(Count what, std::uint64_t amount = 1) {
    values_[static_cast<std::size_t>(what)].fetch_add(amount, std::memory_order_relaxed);
  }
  std::uint64_t value(Count what) const {
    return values_[static_cast<std::size_t>(what)].load(std::memory_order_relaxed);
  }
  std::size_t parked_now() const { return parked_now_.load(std::memory_order_relaxed); }
  /// TIMED: a push of that worker came after its round had closed.
  void add_late(int worker);
  /// SSP: a pull was served with values to which the slowest worker's last `steps` steps were missing.
  void add_staleness(std::uint64_t steps);
  /// By number of steps.
  std::map<std::uint64_t, std::uint64_t> staleness() const;
  /// By worker.
  std::map<int, std::uint64_t> late() const;
  /// Pulls that wait at this moment.
  void set_parked_now(std::size_t pulls) { parked_now_.store(pulls, std::memory_order_relaxed); }

  /// "pushes_applied" -> 17, all of them; "late_pushes_of_worker_1" -> 3 and "pulls_stale_by_2" -> 40 where
  /// there are such.
  std::map<std::string, std::uint64_t> all() const;

  /// Publishes the counters of server `index`. The registry keeps the counters alive.
  static void publish(const std::shared_ptr<ServerCounters>& counters, MetricsRegistry& registry, int index);

 private:
  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Count::kCount)> values_{};
  std::atomic<std::size_t> parked_now_{0};
  mutable std::mutex mutex_;
  std::map<int, std::uint64_t> late_;                 // guarded by mutex_
  std::map<std::uint64_t, std::uint64_t> staleness_;  // guarded by mutex_
};

}  // namespace braid::ps
