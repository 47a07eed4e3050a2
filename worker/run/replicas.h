// What the replicas of MIRRORED, threads of one process, share beside their communicator: rows that all of
// them read alike, how busy their streams are under names of one process, and how they end: the first that
// fails ends the others' waits, and is the one that is named. Thread rule: safe from any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/exec/runtime.h"
#include "worker/input/data.h"

namespace braid::comm {
class Communicator;
}

namespace braid::worker {

class Replicas {
 public:
  /// `names`: of their devices, "/gpu:0" and so on. The first replica speaks for the process.
  explicit Replicas(std::vector<std::string> names);

  int size() const { return static_cast<int>(names_.size()); }
  const std::string& name(int replica) const { return names_[at(replica)]; }

  /// The rows that `read` gives to the first replica, for all: they have its tables, and no copies. Where
  /// rows are streamed each reads its own. Throws: what `read` throws; Unavailable in the others then;
  /// Cancelled.
  JobData rows(int replica, const std::function<JobData()>& read, const std::stop_token& stop);

  /// Where the replica's times come from, until freeze() keeps the last ones.
  void watch(int replica, std::function<HostActivity()> source);
  void freeze(int replica);
  /// Of all replicas; streams are "/gpu:1/compute0". The time in which any stream computed is the sum of the
  /// replicas' such times, so that the overlap is the one within a replica.
  HostActivity activity() const;

  /// It has met the others, who end its waits through `communicator` when one of them fails.
  void joined(int replica, std::shared_ptr<comm::Communicator> communicator);
  /// What it threw. The others' waits end. Of several failures the first counts, unless it was the end of a
  /// wait and another is its cause.
  void fail(int replica, std::exception_ptr error);
  /// It left before its first step, asked to stop: nobody is to wait for it.
  void leave();
  /// Returns when all replicas have called it. Each has deadlines of its own until then.
  void end_together();
  /// Throws what the first replica to fail threw, with its name; else returns.
  void throw_failure() const;

 private:
  static std::size_t at(int replica) { return static_cast<std::size_t>(replica); }
  void end_waits();

  const std::vector<std::string> names_;
  mutable std::mutex mu_;  // guards what follows
  std::condition_variable_any changed_;
  std::optional<JobData> rows_;
  bool ended_waits_ = false;
  int failed_ = -1;
  bool failed_for_cause_ = false;  // and not as a wait for others ended
  std::exception_ptr failure_;
  int ended_ = 0;
  std::vector<std::shared_ptr<comm::Communicator>> communicators_;

  struct Source {
    std::function<HostActivity()> now;
    HostActivity last;
  };
  mutable std::mutex activity_mu_;
  std::vector<Source> sources_;  // guarded by activity_mu_
};

}  // namespace braid::worker
