// Which pushes have been taken, so that a retried one applies once. For each worker process (session): the
// sequences of its newest kWindow steps; whatever is older counts as taken long ago. Thread rule: one thread
// at a time (the core's lock).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace braid::ps {

enum class Seen { New, Duplicate, Stale };

/// The taken pushes of one worker process, as a checkpoint has them.
struct WorkerMarks {
  std::int32_t worker = 0;
  std::uint64_t session = 0;
  std::uint64_t floor = 0;  // steps below are over
  std::map<std::uint64_t, std::set<std::uint32_t>> taken;
};

class Watermarks {
 public:
  static constexpr std::uint64_t kWindow = 64;

  /// Forgets what earlier processes of this worker pushed. The same session again changes nothing.
  void begin_session(std::int32_t worker, std::uint64_t session);

  Seen look(std::int32_t worker, std::uint64_t step, std::uint32_t sequence) const;
  void take(std::int32_t worker, std::uint64_t step, std::uint32_t sequence);

  /// The state as of the steps below `end` alone; all of it by default.
  std::vector<WorkerMarks> save(std::uint64_t end = ~std::uint64_t{0}) const;

  /// Replaces the state: workers whose session is that of a saved entry go on from it, other known workers
  /// start anew.
  void restore(const std::vector<WorkerMarks>& saved);

 private:
  std::map<std::int32_t, WorkerMarks> workers_;
};

}  // namespace braid::ps
