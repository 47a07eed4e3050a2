// The program of one training step, from job and data to streams, without running anything: what the trainer
// binds and `braid graph plan --job` shows.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/input/schema/table.h"
#include "models/model.h"
#include "worker/input/batch_share.h"
#include "worker/step/training_graph.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {

/// Whether a step is prepared again where a batch has more ids than its room, instead of ending the job: one
/// worker, whose room no other one has to have.
bool room_grows(const proto::Job& job, int world);

/// This worker's part of the job's batches. For a step on a device columns are as they are stored, a quarter
/// of the bytes where that is uint8. REQUIRES: resolve_device() was called (worker/process/device.h).
BatchOptions training_batches(const proto::Job& job, int rank, int world);

/// REQUIRES: resolve_device() was called (worker/process/device.h).
CompileOptions training_compile_options(const proto::Job& job);

/// How instances of the job's programs are bound. What has no effect where they run is logged.
InstanceOptions instance_options(const proto::Job& job);

struct TrainingProgram {
  TrainingGraph training;
  std::shared_ptr<const Program>
      program;  // feeds: the model's columns, or what staging.auto_stage hands over in their place;
                // fetches: the loss, then the stop votes where the strategy has them, then whether the step
                // was skipped where the loss is scaled, then how many choices of experts were dropped
                // where there are such
  /// Null, or what runs before the first step (worker/step/next_batch.h). Feeds: those of the next batch.
  std::shared_ptr<const Program> before_first = {};
  /// What all workers of an all-reduce must have alike: the whole plan where all have as many rows, else
  /// variables and collectives.
  std::uint64_t agreed_hash = 0;
  CompileOptions options;  // that the program was compiled with
};

/// Decides the streams of a graph before it is compiled.
using ChooseStreams =
    std::function<StreamOptions(const Graph&, const CompileRequest&, const CompileOptions&)>;

/// Differentiates the model, lets the strategy rewrite it, compiles it for this worker's share of the
/// batches.
TrainingProgram make_training_program(const proto::Job& job, const ModelGraph& model, const Batcher& batcher,
                                      const BatchShare& share, Strategy& strategy,
                                      const ChooseStreams& choose_streams = {});

/// The program of the same graph for the batches that `batcher` makes now, whose ragged columns have grown,
/// over the variables of `store`. Throws: as compile().
std::shared_ptr<const Program> compile_again(const proto::Job& job, const ModelGraph& model,
                                             const Batcher& batcher, const BatchShare& share,
                                             const TrainingGraph& training, const CompileOptions& options,
                                             VariableStore& store);

/// plan_json() of the step, with what the strategy has decided as "sharded_tables".
std::string step_json(const Program& program, const Strategy& strategy);

/// Logs what compiling has found out for those who run the program: what became of streams and batches, and
/// warnings, also those of streams that AUTO has looked at and not taken.
void log_notes(const Program& program);

}  // namespace braid::worker
