#include "tests/engine/rewrite/mixed_bags.h"

#include "engine/autodiff/gradients.h"
#include "engine/import/import.h"
#include "engine/ir/op.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "models/model.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

constexpr std::int64_t kBagRows = 128, kDim = 32, kDense = 13, kIdsOfTable = 40;
constexpr std::int64_t kLengths[] = {1, 3, 2, 1, 7};
constexpr float kLearningRate = 0.01F, kAccumulator = 1e-6F;

ModelGraph small_dlrm(std::int64_t& ids) {
  ModelConfig config;
  config.sparse_tables = true;
  config.embedding_dim = kDim;
  config.cross_layers = 2;
  config.cross_rank = 16;
  config.bottom = {48};
  config.hidden = {64, 32};
  config.columns = {{"dense", Shape{kDense}}, {"label", Shape{}}};
  ids = 0;
  for (const std::int64_t length : kLengths) {
    config.fields["sparse"].push_back(
        {.name = "c" + std::to_string(ids), .length = length, .ids = kIdsOfTable, .filled = false});
    ids += length;
  }
  config.columns["sparse"] = Shape{ids};
  return build_model("dlrm_v2", config);
}

void add_update(MixedModel& model, const VariableGradient& gradient) {
  const OpRegistry& ops = OpRegistry::global();
  const VariableInfo& variable = gradient.variable;
  const OptimizerSpec spec{.kind = OptimizerKind::Adagrad,
                           .initial_accumulator = kAccumulator,
                           .row_wise = gradient.slices.has_value()};
  Node slot;
  slot.name = variable.name + "/accumulator";
  slot.op = &ops.require("VarHandleOp");
  slot.attrs = {{"dtype", DType::Float32},
                {"shape", spec.row_wise ? Shape{variable.shape[0]} : variable.shape},
                {"_trainable", false},
                {"_init_kind", static_cast<std::int64_t>(InitKind::Constant)},
                {"_init_a", static_cast<double>(kAccumulator)},
                {"_init_b", 0.0}};
  Node update;
  update.name = model.graph.unique_name("update/" + variable.name);
  update.op = &ops.require(gradient.slices ? "braid.SparseApplyOptimizer" : "braid.ApplyOptimizer");
  update.attrs = optimizer_attrs(spec);
  update.inputs = {{variable.handle, 0}, {model.graph.add(std::move(slot)), 0}};
  if (gradient.slices) update.inputs.push_back(gradient.slices->indices);
  update.inputs.push_back(gradient.slices ? gradient.slices->values : gradient.dense);
  model.request.targets.push_back(update.name);
  model.graph.add(std::move(update));
}

}  // namespace

MixedModel trained_bags() {
  std::int64_t length = 0;
  const ModelGraph model = small_dlrm(length);
  MixedModel made;
  made.graph = import_graph(*model.graph);
  made.request.fetches = {model.loss};
  for (const VariableGradient& gradient : add_gradients(made.graph, made.graph.parse_value(model.loss)))
    add_update(made, gradient);
  made.request.feeds = {{"dense", DType::Float32, {kBagRows, kDense}},
                        {"sparse", DType::Int64, {kBagRows, length}},
                        {"label", DType::Float32, {kBagRows}}};
  Tensor ids(DType::Int64, Shape{kBagRows, length}), labels(DType::Float32, Shape{kBagRows});
  for (std::size_t i = 0; i < ids.data<std::int64_t>().size(); ++i)
    ids.data<std::int64_t>()[i] = static_cast<std::int64_t>(i * i % 37);
  for (std::size_t i = 0; i < labels.data<float>().size(); ++i)
    labels.data<float>()[i] = i % 3 == 0 ? 1.0F : 0.0F;
  made.feeds = {random_floats({kBagRows, kDense}, 1), ids, labels};
  return made;
}

std::vector<float> losses_of(const MixedModel& model, const CompileOptions& options, int steps,
                             const std::shared_ptr<Accelerator>& device) {
  std::vector<float> losses;
  for (const std::vector<Tensor>& fetched : run_steps(model, options, steps, device, kLearningRate))
    losses.push_back(fetched[0].data<float>()[0]);
  return losses;
}

}  // namespace braid::testing
