// The checkpoints of a run: from which one it goes on, when the next is due, and that the leader writes it.
// worker/checkpoint/checkpointer.h reads and writes. Thread rule: one thread, no step in flight.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker/checkpoint/checkpointer.h"
#include "worker/metrics/metrics.h"
#include "worker/run/built_step.h"
#include "worker/run/context.h"
#include "worker/run/start.h"

namespace braid::worker {

/// The attribute of a checkpoint that says how evaluations went before it.
inline constexpr const char* kEvaluations = "evaluations";

class RunCheckpoints {
 public:
  /// All outlive it. `started`: the run that checkpoints are of. `metric`: what the best ones are chosen by.
  /// `keeps_best`: the best one stays even if the job does not ask for it. Without checkpoint.directory there
  /// is nothing to restore, and nothing is ever due.
  RunCheckpoints(const RunContext& run, const StartedRun& started, const BuiltStep& built,
                 const Metric& metric, bool keeps_best);

  /// Of a run that is to go on: fills the variables from the newest whole checkpoint. Throws: as
  /// Checkpointer::restore_local; DataLoss when its input is at another step than its variables;
  /// InvalidArgument when seed, input, model or optimizer are not those of the checkpoint, unless the user
  /// accepts that. `batcher`: whose order of rows is compared with the checkpoint's; null: none is.
  std::optional<CheckpointInfo> restore(const Batcher* batcher);
  /// The same of a run that is under way, whose variables are lost; only logs what differs.
  std::optional<CheckpointInfo> go_back(const Batcher* batcher);
  /// The run begins at `first`: says what may surprise who started it.
  void begin(std::uint64_t first, bool restored);
  /// The run goes on: `earlier` was of its last world.
  void continue_from(const RunCheckpoints& earlier);
  /// The first step begins, from which checkpoint.every_seconds counts.
  void start_clock();

  /// In steps; 0: not by steps.
  std::uint64_t interval() const;
  /// By steps or by the clock, where `done` steps are in the variables, and `next` would be started next.
  bool is_due(std::uint64_t done, std::uint64_t next) const;
  /// By the leader's clock; the others wait for it where they need it next.
  bool is_due_by_clock(std::uint64_t done, std::uint64_t next) const;
  /// Once a step. `cursor` is that of the input behind it.
  void save(std::uint64_t done, const std::string& cursor, const std::map<std::string, double>& metrics,
            const std::map<std::string, std::string>& attributes, const WaitContext& wait);
  /// Others have made steps since the last one, so that save() writes that step again.
  void outdate() { saved_ = UINT64_MAX; }
  /// Of this run's checkpoint of that step; empty where there is none.
  std::string directory_of(std::uint64_t step) const;
  bool enabled() const { return checkpointer_ != nullptr; }

 private:
  std::optional<CheckpointInfo> restore_newest(const Batcher* batcher, bool accepts_changes);
  /// What differs from the job of the checkpoint, and from its input.
  std::vector<std::string> changes(const CheckpointInfo& from, const Batcher* batcher) const;
  /// Throws: InvalidArgument with them, unless they are accepted.
  void take_changes(const CheckpointInfo& from, const std::vector<std::string>& changes, bool accepted) const;

  const RunContext run_;
  const CheckpointRun id_;
  const bool continued_;
  const std::uint64_t plan_hash_;
  std::map<std::string, std::string> former_names_;  // of variables that had others, by those they have
  std::set<std::string> trained_;                    // variables of the model
  std::unique_ptr<Checkpointer> checkpointer_;       // null: no directory
  std::uint64_t first_ = 0;
  std::uint64_t saved_ = UINT64_MAX;  // the step of the last one
  std::chrono::steady_clock::time_point saved_at_;
};

}  // namespace braid::worker
