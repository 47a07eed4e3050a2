// The training graph of one worker of a group under strategy EXPERTS: its slices of the weights, nodes that
// work on slices, and the exchanges between. Thread rule: one thread.
#pragma once

#include <functional>
#include <string>

#include "worker/strategies/experts_plan.h"

namespace braid::worker {

/// What the group does together. A value's name is for people.
struct ExpertCalls {
  /// Part m along axis 0 goes to worker m of the group; the parts that come from all lie in their order.
  std::function<ValueRef(ValueRef value, const std::string& name)> all_to_all;
  /// [parts, ...]: the values of the group's workers, in order.
  std::function<ValueRef(ValueRef value, const std::string& name)> gather;
  /// The sum over the group, of which each worker gets its slice along axis 0.
  std::function<ValueRef(ValueRef value, const std::string& name)> sum_of_slice;
};

/// Makes `training`, of which the plan is, that of worker `place` of the group: the variables of the plan's
/// slices are called slice_name() and have the slice's shape, and so have their gradients, which are sums
/// over the group; all other gradients, and the loss, are of the worker's own rows.
void spread_experts(TrainingGraph& training, const ExpertsPlan& plan, int place, const ExpertCalls& calls);

}  // namespace braid::worker
