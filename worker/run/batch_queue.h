// The job's queue of batches (input.shard DYNAMIC) as a run begins and saves it. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/checkpoint.h"
#include "ps/client/batch_queue.h"
#include "worker/input/taken_batches.h"
#include "worker/run/context.h"
#include "worker/run/input.h"

namespace braid::worker {

/// How the batches of the job are given out, `epoch_batches` an epoch. `window_batches`: so many have the
/// rows that are mixed with each other, where rows are streamed; 0: they are in memory.
ps::QueuePlan batch_queue_plan(const proto::Job& job, std::int64_t epoch_batches, std::int64_t window_batches,
                               int workers);

/// Of the job, as its schedule counts: a step is as many batches as there are workers.
std::uint64_t steps_of(const ps::QueuePlan& plan);

/// On the leader: gives out what `restored` leaves, or where nothing is restored and the run is resumed, what
/// an earlier leader's queue does; else all. Result: the step of the job that it is at. Throws: as
/// BatchQueue::open(); DataLoss for a damaged checkpoint.
std::uint64_t open_batch_queue(const RunContext& run, const RunInput& input,
                               const std::optional<CheckpointInfo>& restored, const WaitContext& wait);

/// For a checkpoint of that step: "ticket=<step> <state of the queue> of <rows, seed and order of an epoch>".
std::string batch_queue_cursor(const RunInput& input, std::uint64_t step, const WaitContext& wait);

}  // namespace braid::worker
