// What AUTO decides for the job: measured by the leader before step 0 (engine/exec/tune.h), the same in all
// processes that must run one plan, and kept beside the checkpoints, so that a resumed job goes on with it.
// Thread rule: the training thread, no step in flight.
#pragma once

#include <functional>
#include <vector>

#include "base/wait_context.h"
#include "engine/exec/runtime.h"
#include "engine/exec/stream_plan.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {

struct StreamTuning {
  const proto::Job& job;
  const Peers& peers;
  Strategy& strategy;
  Runtime& runtime;
  /// What a step of this graph is fed with: values for the request's feeds.
  std::function<std::vector<Tensor>(const Graph&, const CompileRequest&)> first_feeds;
  bool resume = false;
  WaitContext wait;  // for the leader's decision
};

/// The stream options with which the program is to be compiled; those of `options`, where there is nothing to
/// decide. The job's first batch is what is measured on.
/// Throws: what compile() throws; Unavailable, DeadlineExceeded (the leader is gone, or late);
/// InvalidArgument for a kept plan that is broken.
StreamOptions tuned_streams(const StreamTuning& tuning, const Graph& graph, const CompileRequest& request,
                            const CompileOptions& options);

}  // namespace braid::worker
