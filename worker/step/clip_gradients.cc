#include "worker/step/clip_gradients.h"

#include "engine/ir/op.h"
#include "engine/ops/common/index_groups.h"

namespace braid::worker {

void clip_by_global_norm(TrainingGraph& training, std::vector<VariableGradient>& gradients, float clip_norm,
                         bool scaled, const SumOverRanks& sum_over_ranks) {
  if (clip_norm == 0 || gradients.empty()) return;
  Graph& graph = training.graph;
  std::vector<ValueRef> halves;  // half the squares of each
  for (const VariableGradient& gradient : gradients) {
    const std::string name = "clip/" + gradient.variable.name;
    if (gradient.slices)
      halves.push_back(add_node(graph, "braid.RowsL2Loss", name,
                                {gradient.slices->indices, gradient.slices->values},
                                {{"rows", gradient.variable.shape[0]},
                                 {kSkipNegative, sum_over_ranks != nullptr || pads_indices(graph, gradient)}},
                                gradient.slices->values.node));
    else
      halves.push_back(
          add_node(graph, "L2Loss", name, {gradient.dense}, {{"T", DType::Float32}}, gradient.dense.node));
  }
  if (sum_over_ranks) sum_over_ranks(halves);
  const ValueRef scale = add_node(graph, "braid.ClipScale", "clip/scale", halves,
                                  {{"clip_norm", clip_norm}, {"scaled", scaled}}, kNoNode);
  for (VariableGradient& gradient : gradients) {
    ValueRef& value = gradient.slices ? gradient.slices->values : gradient.dense;
    value = add_node(graph, "Mul", "clip/" + gradient.variable.name + "/clipped", {value, scale},
                     {{"T", DType::Float32}}, value.node);
  }
}

}  // namespace braid::worker
