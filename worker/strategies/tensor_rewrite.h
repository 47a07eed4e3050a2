// The training graph of one worker of a group under strategy TENSOR: its slices of the weights, nodes that
// work on slices, and the exchanges between. Thread rule: one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "worker/strategies/tensor_plan.h"

namespace braid::worker {

/// What the group does together. A value's name is for people.
struct GroupCalls {
  /// Of terms, which are float32; of several together.
  std::function<std::vector<ValueRef>(std::vector<ValueRef> values, const std::string& name)> sum;
  /// The same, of which each worker gets its slice along axis 0; null: there is no shorter way than sum.
  std::function<ValueRef(ValueRef value, const std::string& name)> sum_of_slice;
  /// [parts, ...]: the values of the group's workers, in order.
  std::function<ValueRef(ValueRef value, const std::string& name)> gather;
  /// Whether the first one's gradients of rows of whole tables are those of all, too.
  bool tells_rows = false;
};

/// What the variable of a worker's slice is called, whose slots are "<slice>/<slot>".
std::string slice_name(const std::string& variable);

/// A node that waits for an exchange of the backward pass, and the gradients of weights that can be made
/// meanwhile.
struct WhileExchanging {
  struct Gradient {
    NodeId node = kNoNode;
    std::string variable;          // as gradients name it
    bool is_read_no_more = false;  // when the node runs, so that it may be written before
  };
  NodeId node = kNoNode;
  std::vector<Gradient> gradients;
};

/// Makes `training`, of which the plan is, that of worker `place` of the group: the variables of the plan's
/// slices are called slice_name() and have the slice's shape, and so have their gradients; all other
/// gradients, and the loss, are whole. Gradients of whole variables are the first worker's wherever all make
/// them, so that the variables never part. Result: what an order that keeps memory small looks like.
std::vector<WhileExchanging> take_slices(TrainingGraph& training, const TensorPlan& plan, int place,
                                         const GroupCalls& calls);

}  // namespace braid::worker
