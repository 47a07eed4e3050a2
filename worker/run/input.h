// What a run loads before it builds anything: the tables, the model that fits them, and the batches of this
// worker. Thread rule: values; the batcher as engine/input/schema/table.h says.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/checkpoint.h"
#include "base/wait_context.h"
#include "engine/input/schema/table.h"
#include "models/model.h"
#include "ps/client/batch_queue.h"
#include "worker/input/batch_share.h"
#include "worker/input/data.h"
#include "worker/input/taken_batches.h"
#include "worker/run/context.h"

namespace braid::worker {

struct RunInput {
  JobData data;
  ModelGraph model;
  bool shares_test = false;       // all workers have the test rows, and measure on some of them each
  std::uint64_t total_steps = 0;  // of the whole job
  BatchShare share;               // of every step's rows, this worker's
  std::unique_ptr<TakenBatches>
      taken;            // of input.shard DYNAMIC; null: a worker's steps have the batches of their numbers
  ps::QueuePlan queue;  // of its batches
  std::unique_ptr<Batcher> batcher;
};

/// Reads the files. The test data are read by who evaluates; where workers share that they tell each other
/// whether they have the files, within `wait`. `id`: of the run, whose checkpoints say which
/// files of a growing input were taken. Throws: InvalidArgument, DataLoss.
RunInput load_input(const RunContext& run, const std::optional<CheckpointRun>& id, const WaitContext& wait);

/// The same but for this worker's part of the batches.
RunInput load_rows(const RunContext& run, const std::optional<CheckpointRun>& id, const WaitContext& wait);
/// This worker's part, by its rank. REQUIRES: nothing reads an earlier batcher.
void share_rows(const RunContext& run, RunInput& input);

}  // namespace braid::worker
