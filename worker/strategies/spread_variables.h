// Variables that are spread over the ranks (ZeRO stage 3, Rajbhandari et al. 2020), as a rewrite of the
// training graph. Each rank has a run of a variable's elements, flat. What a pass over the model (forward or
// backward, of a part of the batch) reads is gathered bucket by bucket in the order in which it is read, and
// read by that pass alone, so its memory is free again behind it. A gather waits for the readers of the one
// before the one before it: it runs beside those of the one before, and no more than two are there at once.
// Or each variable is gathered once a step and stays until its last reader (stages 1 and 2). Thread rule: one
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "worker/strategies/tensor_plan.h"

namespace braid::worker {

struct SpreadCalls {
  /// [ranks, n] of each, behind these nodes.
  std::function<std::vector<ValueRef>(std::vector<ValueRef> values, const std::string& name,
                                      std::vector<NodeId> behind)>
      gather;
  /// [ranks * n] to [n]: this rank's run of the sum over ranks.
  std::function<ValueRef(ValueRef value, const std::string& name)> sum_of_run;
};

struct SpreadOptions {
  /// That are gathered together; a larger variable is a bucket of its own.
  std::int64_t bucket_bytes = 1 << 20;
  bool keeps = false;  // gathers each variable once
};

/// For people.
struct VariableGather {
  int pass = 0;
  std::vector<std::string> variables;
  std::int64_t bytes = 0;  // of the whole values
};

/// What is spread: variables with dense gradients that are read by their value alone, of at least so many
/// elements. REQUIRES: training.feeds.
std::vector<TensorSlice> spread_slices(const TrainingGraph& training, int ranks, std::int64_t min_elements);

/// The variables of `slices` are called slice_name() then and have the slice's shape, and so have their
/// gradients, which are sums over the ranks. Result: a step's gathers, in order. REQUIRES: training.feeds.
std::vector<VariableGather> spread_variables(TrainingGraph& training, const std::vector<TensorSlice>& slices,
                                             const SpreadOptions& options, const SpreadCalls& calls);

}  // namespace braid::worker
