#include "worker/step/loss_scale.h"

#include "engine/ir/op.h"
#include "engine/ops/common/index_groups.h"
#include "proto/job.pb.h"

namespace braid::worker {
namespace {

constexpr float kFirstScale = 65536;
constexpr std::int64_t kGrowthSteps = 2000;

/// One for all, or where a rank has a part of some gradients one for each.
std::vector<ValueRef> flags_of(TrainingGraph& training, const std::vector<VariableGradient>& gradients,
                               const SumOverRanks& sum_over_ranks) {
  Graph& graph = training.graph;
  std::vector<ValueRef> flags, values;
  for (const VariableGradient& gradient : gradients) {
    values.push_back(gradient.slices ? gradient.slices->values : gradient.dense);
    if (!sum_over_ranks) continue;
    const std::string name = "loss_scale/" + gradient.variable.name;
    ValueRef seen = values.back();
    if (gradient.slices)  // rows of negative indices are none
      seen = add_node(graph, "braid.RowsL2Loss", name, {gradient.slices->indices, gradient.slices->values},
                      {{"rows", gradient.variable.shape[0]}, {kSkipNegative, true}}, values.back().node);
    flags.push_back(add_node(graph, "braid.NotFinite", name + "/not_finite", {seen}, {}, seen.node));
  }
  if (sum_over_ranks)
    sum_over_ranks(flags);
  else
    flags = {add_node(graph, "braid.NotFinite", "loss_scale/not_finite", values)};
  return flags;
}

/// The factor of this step's gradients; NaN: they are not to be used.
ValueRef decide(TrainingGraph& training, std::vector<ValueRef> flags) {
  const LossScale& scale = *training.loss_scale;
  std::vector<ValueRef> inputs{scale.scale, scale.good_steps, scale.skipped_steps};
  inputs.insert(inputs.end(), flags.begin(), flags.end());
  const ValueRef inverse = add_node(training.graph, "braid.LossScaleStep", "loss_scale/step",
                                    std::move(inputs), {{"growth", scale.growth_steps}});
  training.skipped = {inverse.node, 1};
  return inverse;
}

ValueRef multiplied(Graph& graph, const std::string& name, ValueRef value, ValueRef factor) {
  return add_node(graph, "Mul", name, {value, factor}, {{"T", DType::Float32}}, value.node);
}

template <class Change>
void change_each(std::vector<VariableGradient>& gradients, Change change) {
  for (VariableGradient& gradient : gradients) {
    ValueRef& value = gradient.slices ? gradient.slices->values : gradient.dense;
    value = change("loss_scale/" + gradient.variable.name, value);
  }
}

}  // namespace

std::optional<LossScaleOptions> loss_scale_of(const proto::Job& job) {
  if (job.runtime().precision() != proto::Runtime::FP16) return std::nullopt;
  const proto::MixedPrecision& mixed = job.runtime().mixed_precision();
  LossScaleOptions options{kFirstScale, kGrowthSteps};
  if (mixed.loss_scale() > 0) options.first = static_cast<float>(mixed.loss_scale());
  if (mixed.loss_scale_steps() > 0) options.growth_steps = mixed.loss_scale_steps();
  return options;
}

ValueRef add_loss_scale(TrainingGraph& training, ValueRef loss, const LossScaleOptions& options) {
  Graph& graph = training.graph;
  LossScale scale;
  const auto scalar = [&](const char* name, float first) {
    return add_state(graph, name, Shape{}, first, first);
  };
  scale.scale = scalar("loss_scale", options.first);
  scale.good_steps = scalar("loss_scale/good_steps", 0);
  scale.skipped_steps = scalar("loss_scale/skipped_steps", 0);
  scale.growth_steps = options.growth_steps;
  training.loss_scale = scale;
  const ValueRef read =
      add_node(graph, "ReadVariableOp", "loss_scale/read", {scale.scale}, {{"dtype", DType::Float32}});
  return add_node(graph, "Mul", "loss_scale/scaled", {loss, read}, {{"T", DType::Float32}});
}

void unscale_gradients(TrainingGraph& training, std::vector<VariableGradient>& gradients,
                       const SumOverRanks& sum_over_ranks) {
  if (!training.loss_scale || gradients.empty()) return;
  const ValueRef inverse = decide(training, flags_of(training, gradients, sum_over_ranks));
  change_each(gradients, [&](const std::string& name, ValueRef value) {
    return multiplied(training.graph, name + "/unscaled", value, inverse);
  });
}

void unscale_or_drop_gradients(TrainingGraph& training, std::vector<VariableGradient>& gradients) {
  if (!training.loss_scale || gradients.empty()) return;
  Graph& graph = training.graph;
  const ValueRef inverse = decide(training, flags_of(training, gradients, {}));
  const ValueRef is_good =
      add_node(graph, "IsFinite", "loss_scale/is_good", {inverse}, {{"T", DType::Float32}});
  const ValueRef zero = add_node(graph, "Const", "loss_scale/zero", {},
                                 {{"dtype", DType::Float32}, {"value", Tensor::scalar(0.0F)}});
  change_each(gradients, [&](const std::string& name, ValueRef value) {
    const ValueRef unscaled = multiplied(graph, name + "/unscaled", value, inverse);
    return add_node(graph, "SelectV2", name + "/kept", {is_good, unscaled, zero}, {{"T", DType::Float32}},
                    value.node);
  });
}

}  // namespace braid::worker
