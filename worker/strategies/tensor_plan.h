// Which weights strategy TENSOR cuts into slices: those that strategy.tensor.layer names, and, where it may
// look for more, layers one after another of which the first is cut by columns and the last by rows, with
// whatever is between them (biases, activations, heads of attention), so that nothing but sums of the last
// one's outputs, and of the gradient of the first one's inputs, is exchanged (Shoeybi et al. 2019). Thread
// rule: values and pure functions.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/strategies/tensor_flow.h"

namespace braid::proto {
class Tensor;
}

namespace braid::worker {

/// A variable in slices.
struct TensorSlice {
  VariableInfo whole;
  int axis = 0;
  int parts = 1;
  bool rows = false;  // of weights: the axis that a layer's inputs are summed over
  bool flat = false;  // not along an axis, but a run of all elements, the last one filled up with zeros

  Shape local_shape() const;
};

struct TensorPlan {
  PipelineNodes nodes;
  std::unique_ptr<TensorGraph> graph;  // of nodes
  std::vector<TensorSlice> slices;     // by their variables' order in the graph
  LayoutFlow flow;

  const TensorSlice* find(const std::string& variable) const;
};

/// Throws: InvalidArgument with the field and the variable: a pattern that fits no weights, or weights that
/// are not cut as it says.
std::unique_ptr<TensorPlan> plan_tensor(const TrainingGraph& training, const proto::Tensor& how, int parts);

}  // namespace braid::worker
