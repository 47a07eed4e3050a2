#include "engine/ops/optimizer/optimizer_attrs.h"

#include "base/error.h"

namespace braid {
namespace {

OptimizerKind kind_from_name(const std::string& name) {
  for (const OptimizerKind kind : kOptimizerKinds)
    if (optimizer_name(kind) == name) return kind;
  if (name == optimizer_name(OptimizerKind::Adafactor)) return OptimizerKind::Adafactor;
  throw InvalidArgument("attribute kind names no optimizer: '" + name + "'");
}

}  // namespace

AttrMap optimizer_attrs(const OptimizerSpec& spec) {
  return {{"kind", optimizer_name(spec.kind)},
          {"momentum", spec.momentum},
          {"nesterov", spec.nesterov},
          {"beta1", spec.beta1},
          {"beta2", spec.beta2},
          {"epsilon", spec.epsilon},
          {"initial_accumulator", spec.initial_accumulator},
          {"weight_decay", spec.weight_decay},
          {"rho", spec.rho},
          {"centered", spec.centered},
          {"learning_rate_power", spec.learning_rate_power},
          {"l2_shrinkage", spec.l2_shrinkage},
          {"l1", spec.l1},
          {"l2", spec.l2},
          {"clip_value", spec.clip_value},
          {"learning_rate_factor", spec.learning_rate_factor},
          {"adagrad_epsilon", spec.adagrad_epsilon},
          {"row_wise", spec.row_wise},
          {"skip_nan", spec.skip_nan},
          {"clip_threshold", spec.clip_threshold},
          {"decay_exponent", spec.decay_exponent},
          {"least_scale", spec.least_scale},
          {"scale_by_weights", spec.scale_by_weights}};
}

OptimizerSpec optimizer_spec(const AttrMap& attrs) {
  const OptimizerSpec defaults;
  const auto number = [&](std::string_view name, float fallback) {
    return static_cast<float>(attrs.get(name, static_cast<double>(fallback)));
  };
  return {.kind = kind_from_name(attrs.require<std::string>("kind")),
          .momentum = number("momentum", defaults.momentum),
          .nesterov = attrs.get("nesterov", defaults.nesterov),
          .skip_nan = attrs.get("skip_nan", defaults.skip_nan),
          .beta1 = number("beta1", defaults.beta1),
          .beta2 = number("beta2", defaults.beta2),
          .epsilon = number("epsilon", defaults.epsilon),
          .initial_accumulator = number("initial_accumulator", defaults.initial_accumulator),
          .weight_decay = number("weight_decay", defaults.weight_decay),
          .rho = number("rho", defaults.rho),
          .centered = attrs.get("centered", defaults.centered),
          .learning_rate_power = number("learning_rate_power", defaults.learning_rate_power),
          .l2_shrinkage = number("l2_shrinkage", defaults.l2_shrinkage),
          .l1 = number("l1", defaults.l1),
          .l2 = number("l2", defaults.l2),
          .clip_value = number("clip_value", defaults.clip_value),
          .learning_rate_factor = number("learning_rate_factor", defaults.learning_rate_factor),
          .adagrad_epsilon = number("adagrad_epsilon", defaults.adagrad_epsilon),
          .row_wise = attrs.get("row_wise", defaults.row_wise),
          .clip_threshold = number("clip_threshold", defaults.clip_threshold),
          .decay_exponent = number("decay_exponent", defaults.decay_exponent),
          .least_scale = number("least_scale", defaults.least_scale),
          .scale_by_weights = attrs.get("scale_by_weights", defaults.scale_by_weights)};
}

}  // namespace braid
