// Checkpoints that wait for their turn with a reader that is slower than the workers write, as an evaluator
// may be. Each is linked (hard links, which take no room) into a hidden directory beside them as soon as it
// is seen; one that is pruned before it was seen is linked there by who prunes it (CheckpointStore::remove).
// Where the file system has no links they are read in place, and one that goes before its turn is lost, which
// is said. Thread rule: take() from one thread; looking has its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/checkpoint.h"

namespace braid::worker {

class HeldCheckpoints {
 public:
  /// What blocks of pruned checkpoints may stay on the disk is bounded: behind so many the reader loses some.
  static constexpr std::size_t kMostHeld = 32;

  /// `look`: the whole checkpoints of the run that is followed, oldest first; called on the thread that looks
  /// when something has changed in `root`. When it tells of another run, what waits of the one before is
  /// forgotten.
  HeldCheckpoints(std::filesystem::path root, std::function<std::vector<CheckpointInfo>()> look);
  ~HeldCheckpoints();
  HeldCheckpoints(const HeldCheckpoints&) = delete;
  HeldCheckpoints& operator=(const HeldCheckpoints&) = delete;

  /// The next one, in the order of steps; waits so long for one. The one before is let go. Throws: what
  /// `look` threw.
  std::optional<CheckpointInfo> take(std::chrono::milliseconds patience);

 private:
  using Identity = std::tuple<std::uint64_t, std::string, std::uint64_t>;  // run, its id, step

  void watch(const std::stop_token& stop);
  bool has_changed();
  void add_new(std::vector<CheckpointInfo> all);
  void add_pruned(std::vector<CheckpointInfo>& all);
  std::optional<CheckpointInfo> held(CheckpointInfo info);
  bool is_waiting(const std::filesystem::path& directory) const;  // mutex_ is held
  void let_go(const CheckpointInfo& info) const;

  // Set once.
  const std::filesystem::path root_, links_;
  const std::function<std::vector<CheckpointInfo>()> look_;

  // The looking thread's.
  std::filesystem::file_time_type changed_at_{};
  std::chrono::steady_clock::time_point changed_seen_{}, looked_at_{};
  std::set<Identity> seen_;
  std::optional<CheckpointRun> run_;
  bool links_work_ = true, has_told_ = false;

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<CheckpointInfo> waiting_;  // guarded by mutex_, as the rest
  std::exception_ptr error_;
  std::optional<CheckpointInfo> taken_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace braid::worker
