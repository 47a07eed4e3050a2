#include "worker/step/training_graph.h"

#include <algorithm>

#include "base/error.h"
#include "engine/autodiff/written_softmax.h"
#include "engine/import/import.h"
#include "engine/ir/infer.h"
#include "engine/ir/op.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "models/model.h"
#include "proto/graph.pb.h"
#include "worker/job/optimizers.h"
#include "worker/step/loss_scale.h"
#include "worker/step/micro_batches.h"
#include "worker/step/whole_updates.h"

namespace braid::worker {

namespace {

ValueRef multiplied(Graph& graph, ValueRef value, float factor, const std::string& name) {
  const ValueRef weight = add_node(graph, "Const", name + "_weight", {},
                                   {{"dtype", DType::Float32}, {"value", Tensor::scalar(factor)}});
  return add_node(graph, "Mul", name, {value, weight}, {{"T", DType::Float32}});
}

}  // namespace

TrainingGraph make_training_graph(const GraphDef& forward, const std::string& loss, float weight, bool parted,
                                  const std::optional<LossScaleOptions>& loss_scale) {
  TrainingGraph training;
  training.graph = import_graph(forward, "model");
  join_written_softmax(training.graph);
  training.loss = training.graph.parse_value(loss);
  if (parted) training.loss = add_part_weight(training.graph, training.loss);
  training.weighted_loss = training.loss;
  if (weight != 1.0F)
    training.weighted_loss = multiplied(training.graph, training.loss, weight, "loss_of_share");
  ValueRef differentiated = training.weighted_loss;
  if (loss_scale) differentiated = add_loss_scale(training, differentiated, *loss_scale);
  training.gradients = add_gradients(training.graph, differentiated);
  return training;
}

TrainingGraph make_training_graph(const GraphDef& forward, const std::string& loss, float weight,
                                  const std::vector<GivenGradient>& given) {
  TrainingGraph training;
  Graph& graph = training.graph;
  graph = import_graph(forward, "model");
  training.loss = training.weighted_loss = graph.parse_value(loss);
  if (weight != 1.0F) training.weighted_loss = multiplied(graph, training.loss, weight, "loss_of_share");
  std::map<std::string, VariableInfo> variables;
  for (VariableInfo& variable : list_variables(graph)) variables.emplace(variable.name, std::move(variable));
  for (const GivenGradient& one : given) {
    VariableGradient gradient{variables.at(one.variable), {}, {}};
    ValueRef values = graph.parse_value(one.values);
    if (weight != 1.0F) values = multiplied(graph, values, weight, one.variable + "/gradient_of_share");
    if (one.indices.empty())
      gradient.dense = values;
    else
      gradient.slices = IndexedSlices{graph.parse_value(one.indices), values};
    training.own_optimizers.emplace(one.variable, one.optimizer);
    training.gradients.push_back(std::move(gradient));
  }
  return training;
}

void weigh_loss(TrainingGraph& training, float weight) {
  training.weighted_loss = multiplied(training.graph, training.loss, weight, "loss_of_share");
}

const OptimizerSpec& optimizer_of(const TrainingGraph& training, const Optimizers& optimizers,
                                  const std::string& variable) {
  const auto own = training.own_optimizers.find(variable);
  return own == training.own_optimizers.end() ? optimizers.spec_of(variable) : own->second;
}

std::map<std::string, SliceRows> count_slice_rows(const TrainingGraph& training,
                                                  const std::vector<std::string>& columns,
                                                  const Batcher& batcher, const BatchShare& share) {
  std::map<std::string, SliceRows> counts;
  std::map<std::int64_t, Graph> inferred;  // by the rows of a batch, of which there are two
  const auto first_dimension = [](const Graph& graph, ValueRef value, const std::string& variable) {
    const Shape& shape = graph.node(value.node).outputs[static_cast<std::size_t>(value.output)].shape;
    if (!shape.has_rank() || shape.rank() == 0 || shape[0] == Shape::kUnknown)
      throw InvalidArgument("variable '" + variable +
                            "': how many rows of it a step reads is not known before it runs, so workers "
                            "must have parts of one size: input.global_batch_size must be a multiple of "
                            "their number");
    return shape[0];
  };
  for (int rank = 0; rank < share.world; ++rank) {
    const auto [at, fresh] = inferred.try_emplace(share.rows_of(rank), training.graph);
    Graph& graph = at->second;
    if (fresh) {
      std::vector<FeedInfo> feeds;
      for (std::size_t c = 0; c < columns.size(); ++c)
        feeds.push_back({graph.parse_value(columns[c]), batcher.dtype(c), batcher.shape(c, at->first)});
      infer_graph(graph, feeds);
    }
    for (const VariableGradient& gradient : training.gradients) {
      if (!gradient.slices) continue;
      const std::string& name = gradient.variable.name;
      counts[name].indices.push_back(first_dimension(graph, gradient.slices->indices, name));
      counts[name].values.push_back(first_dimension(graph, gradient.slices->values, name));
    }
  }
  return counts;
}

ValueRef add_node(Graph& graph, const char* op, const std::string& name, std::vector<ValueRef> inputs,
                  AttrMap attrs, NodeId beside) {
  Node node;
  node.name = graph.unique_name(name);
  node.op = &OpRegistry::global().require(op);
  node.inputs = std::move(inputs);
  node.attrs = std::move(attrs);
  node.colocate_with = beside;
  return {graph.add(std::move(node)), 0};
}

ValueRef add_state(Graph& graph, const std::string& name, const Shape& shape, float low, float high,
                   DType dtype) {
  const InitKind kind = low != high               ? InitKind::Uniform
                        : dtype == DType::Float32 ? InitKind::Constant
                                                  : InitKind::Zeros;
  Node handle;
  handle.name = name;
  handle.op = &OpRegistry::global().require("VarHandleOp");
  handle.attrs = {{"dtype", dtype},
                  {"shape", shape},
                  {"_trainable", false},
                  {"_init_kind", static_cast<std::int64_t>(kind)},
                  {"_init_a", static_cast<double>(low)},
                  {"_init_b", kind == InitKind::Constant ? 0.0 : static_cast<double>(high)}};
  return {graph.add(std::move(handle)), 0};
}

void add_update(TrainingGraph& training, const VariableGradient& gradient, const OptimizerSpec& optimizer) {
  Graph& graph = training.graph;
  const VariableInfo& variable = gradient.variable;
  const OpRegistry& ops = OpRegistry::global();
  const bool by_rows = optimizer.row_wise && gradient.slices;
  OptimizerSpec spec = with_small_states(optimizer, variable.shape.elements(), gradient.slices.has_value());
  if (!is_elementwise(spec)) return add_whole_update(training, gradient, spec);
  spec.row_wise = by_rows;
  Node update;
  update.inputs.push_back({variable.handle, 0});
  for (const SlotSpec& slot : optimizer_slots(spec)) {
    const Shape shape = by_rows ? Shape{variable.shape[0]} : variable.shape;
    update.inputs.push_back(add_state(graph, variable.name + "/" + std::string(slot.name), shape,
                                      slot.initial_value, slot.initial_value));
  }
  // The update runs where the gradient is made.
  ValueRef source = gradient.dense;
  if (gradient.slices) {
    update.inputs.push_back(gradient.slices->indices);
    source = gradient.slices->values;
  }
  update.inputs.push_back(source);
  update.op = &ops.require(gradient.slices ? "braid.SparseApplyOptimizer" : "braid.ApplyOptimizer");
  update.attrs = optimizer_attrs(spec);
  if (gradient.slices && pads_indices(graph, gradient)) update.attrs.set(kSkipNegative, true);
  if (training.loss_scale) update.attrs.set("skip_nan", true);
  update.name = graph.unique_name("update/" + variable.name);
  update.colocate_with = source.node;
  training.targets.push_back(update.name);
  graph.add(std::move(update));
}

bool pads_indices(const Graph& graph, const VariableGradient& gradient) {
  return graph.node(gradient.slices->indices.node).attrs.get(kPadsIndices, false);
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
