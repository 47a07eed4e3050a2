#include "worker/training_graph.h"

#include <algorithm>

#include "engine/import/import.h"
#include "engine/ir/op.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "proto/graph.pb.h"

namespace braid::worker {

TrainingGraph make_training_graph(const GraphDef& forward, const std::string& loss) {
  TrainingGraph training;
  training.graph = import_graph(forward, "model");
  training.loss = training.graph.parse_value(loss);
  training.gradients = add_gradients(training.graph, training.loss);
  return training;
}

void add_update(TrainingGraph& training, const VariableGradient& gradient, const OptimizerSpec& optimizer) {
  Graph& graph = training.graph;
  const VariableInfo& variable = gradient.variable;
  const OpRegistry& ops = OpRegistry::global();
  Node update;
  update.inputs.push_back({variable.handle, 0});
  for (const SlotSpec& slot : optimizer_slots(optimizer)) {
    Node handle;
    handle.name = variable.name + "/" + std::string(slot.name);
    handle.op = &ops.require("VarHandleOp");
    handle.attrs = {{"dtype", variable.dtype},
                    {"shape", variable.shape},
                    {"_trainable", false},
                    {"_init_kind", static_cast<std::int64_t>(InitKind::Constant)},
                    {"_init_a", static_cast<double>(slot.initial_value)},
                    {"_init_b", 0.0}};
    update.inputs.push_back({graph.add(std::move(handle)), 0});
  }
  // The update runs where the gradient is made.
  ValueRef source = gradient.dense;
  if (gradient.slices) {
    update.inputs.push_back(gradient.slices->indices);
    source = gradient.slices->values;
  }
  update.inputs.push_back(source);
  update.op = &ops.require(gradient.slices ? "braid.SparseApplyOptimizer" : "braid.ApplyOptimizer");
  update.attrs = optimizer_attrs(optimizer);
  update.name = graph.unique_name("update/" + variable.name);
  update.colocate_with = source.node;
  training.targets.push_back(update.name);
  graph.add(std::move(update));
}

std::vector<std::vector<VariableGradient>> bucket_gradients(const std::vector<VariableGradient>& gradients,
                                                            std::int64_t bucket_bytes) {
  const auto bytes_of = [](const VariableGradient& gradient) {
    const VariableInfo& v = gradient.variable;
    return gradient.slices ? 0 : v.shape.elements() * static_cast<std::int64_t>(dtype_size(v.dtype));
  };
  std::vector<std::vector<VariableGradient>> buckets;
  std::int64_t filled = 0;
  for (auto it = gradients.rbegin(); it != gradients.rend(); ++it) {
    const std::int64_t bytes = bytes_of(*it);
    if (buckets.empty() || (filled > 0 && filled + bytes > bucket_bytes)) {
      buckets.emplace_back();
      filled = 0;
    }
    buckets.back().push_back(*it);
    filled += bytes;
  }
  return buckets;
}

}  // namespace braid::worker
