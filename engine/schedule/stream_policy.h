// What decides the stream of an op that nothing else has decided.
//
//   NONE       everything on stream 0, ids given by hand too (the serial baseline)
//   USER       everything else on stream 0
//   COST       list scheduling on modelled costs, the critical path on one stream (policy_cost.cc)
//   FULL       chains of a minimum path cover, folded by load (policy_full.cc)
//   EMBEDDING  the branch of each embedding table on a stream (policy_embedding.cc)
//   AUTO       of USER, COST and FULL, with and without the ids of scopes, the one with the least predicted
//              step time; what a job runs has been measured before (engine/exec/tune.h), so this is for plans
//              that are only looked at
//
// All but AUTO keep ids that are given. All are deterministic. Under COST and FULL backward nodes follow
// forward nodes whose stream was given by hand; the others are free, which is where the backward pass of a
// chain gets its parallelism.
#pragma once

#include <vector>

#include "engine/schedule/dag.h"
#include "engine/schedule/stream_pins.h"

namespace braid {

/// Streams of all ops; records the policy and why in the program. `lanes` has the stream of ops on lanes and
/// kNoStream for compute ops.
std::vector<int> apply_policy(Plan& plan, const StreamPins& pins, const std::vector<int>& lanes);

/// What the policies start from: streams that are already decided.
struct StreamProblem {
  const Dag& dag;
  const std::vector<int>& fixed;   // by op, kNoStream where free
  const std::vector<int>& leader;  // by op; a group has one stream
  int compute_streams;
  int all_streams;
};

std::vector<int> schedule_by_cost(const StreamProblem& problem);

/// FULL's closure of the dependencies is quadratic in memory.
inline constexpr int kMostFullOps = 5000;
/// REQUIRES: at most kMostFullOps ops.
std::vector<int> cover_by_chains(const StreamProblem& problem);
/// Chains of the cover, each first to last, by their first op.
std::vector<std::vector<int>> minimum_path_cover(const Dag& dag);

std::vector<int> spread_embeddings(Plan& plan, const StreamProblem& problem);

}  // namespace braid
