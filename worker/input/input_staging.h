// How a job's batches become what the step is fed with: the section `staging` of a job -> options, the part
// of the model that runs ahead of the step (staging.auto_stage), and the stage itself. Thread rule: make()
// from several threads at once; everything else from one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/compile/compile.h"
#include "engine/input/schema/table.h"
#include "engine/staging/block_pool.h"
#include "engine/staging/stage.h"
#include "engine/staging/subgraph_runner.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// REQUIRES: resolve_device() was called (worker/process/device.h).
StageOptions stage_options(const proto::Job& job);
/// The pools that the job declares, and its streams.
StageSession stage_session(const proto::Job& job);

/// Memory for batches of this runtime's steps: page-locked where they run on a device, which then copies them
/// from there; else the host's. REQUIRES: the runtime's device outlives the blocks.
BlockPool::Allocate batch_memory(Runtime& runtime);

/// Replaces the feeds `columns` of the request by the values that cross staging's automatic cut, and says in
/// the log what was cut. Where the job does not ask for it only what makes the nodes `ahead` is cut off.
/// Columns of bytes stay bytes up to the step, which casts them, where fewer bytes travel so.
/// Throws: InvalidArgument for names in staging.mark_target_nodes that the graph does not have.
void stage_ahead(const proto::Job& job, const Graph& graph, const std::vector<std::string>& columns,
                 const std::vector<std::string>& ahead, CompileRequest& request);

class TakenBatches;

class InputStaging {
 public:
  /// Makes batches of the values `feeds` of `graph`, in their order, from those of `batcher`, whose columns
  /// are `columns`. `session` is what stage_session() gives; all else outlives it.
  InputStaging(const proto::Job& job, const StageSession& session, const Graph& graph, Batcher& batcher,
               std::vector<std::string> columns, const std::vector<std::string>& feeds, Runtime& step);

  /// Tickets are steps from now on, whose batches are the taken ones, which outlive this.
  void take_from(TakenBatches& taken) { taken_ = &taken; }

  /// Makes batches of these values from now on, or of the same for batches of another shape. REQUIRES: the
  /// stage is stopped.
  void use(const Graph& graph, const std::vector<std::string>& feeds);

  /// The batch of a ticket, on the calling thread.
  Batch make(const StageCall& call);
  /// A stage over make(), not started.
  std::unique_ptr<Stage> make_stage(Stage::Observer observer);

 private:
  // Set once.
  const StageOptions options_;
  const StageSession session_;
  Batcher& batcher_;
  const std::vector<std::string> columns_;
  const std::uint64_t seed_;
  Runtime& step_;
  const std::shared_ptr<BlockPool> blocks_;

  TakenBatches* taken_ = nullptr;          // null: a ticket is a batch
  std::unique_ptr<SubgraphRunner> ahead_;  // null: the columns are the feeds
};

}  // namespace braid::worker
