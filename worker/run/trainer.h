// One worker's training run: data, graph, strategy, program, staging, the step loop, checkpoints, evaluation.
// The same code for all strategies and all workers; the leader (rank 0) also saves, evaluates and reports.
// The parts are in worker/run; this is their order.
// Thread rule: train() runs on the calling thread; stages, streams and the monitor have their own.
#pragma once

#include "base/error.h"
#include "worker/process/stop_signal.h"
#include "worker/run/context.h"
#include "worker/run/result.h"
#include "worker/strategies/strategy.h"
#include "worker/watch/monitor.h"

namespace braid::worker {

/// Whether that is what a wait for peers throws: asked to stop, or they stopped before.
bool ended_a_wait(const Error& error);
/// Whether the error is the end of a wait because this process was asked to stop, or another one was before
/// the job had begun.
bool was_asked_to_stop(const StopFlag& stop, const Error& error);

/// Throws: what any part throws; main turns it into an exit code. On SIGTERM it saves, and returns exit 143:
/// at the end of the step, while it waits for peers before the first one, or between two batches of an
/// evaluation.
TrainResult train(const proto::Job& job, const TrainOptions& options, const Peers& peers, Runtime& runtime,
                  Monitor& monitor, const StopFlag& stop);

}  // namespace braid::worker
