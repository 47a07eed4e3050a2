// A job whose model only runs forwards, in this process alone: its device, runtime and strategy, and the
// values of a checkpoint. Thread rule: one thread.
#pragma once

#include <memory>

#include "base/checkpoint.h"
#include "engine/exec/runtime.h"
#include "engine/ir/graph.h"
#include "worker/strategies/strategy.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// The job, to be run without peers.
proto::Job without_peers(proto::Job job);

/// The variables of `graph` in the runtime's store get the checkpoint's values; rows of a sparse table that
/// training has not touched have their initial values by `seed`. REQUIRES: the store has them. Throws: as
/// StoredVariables.
void restore_variables(const CheckpointInfo& checkpoint, std::uint64_t seed, const Graph& graph,
                       Runtime& runtime);

struct ForwardJob {
  /// Throws: as resolve_device() and open_device().
  explicit ForwardJob(const proto::Job& job);
  ~ForwardJob();

  std::unique_ptr<proto::Job> job;
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<Strategy> strategy;
};

}  // namespace braid::worker
