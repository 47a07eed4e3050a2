#include "engine/ops/optimizer/optimizer_attrs.h"

#include "base/error.h"

namespace braid {
namespace {

OptimizerKind kind_from_name(const std::string& name) {
  for (OptimizerKind kind :
       {OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::Adagrad, OptimizerKind::Adam})
    if (optimizer_name(kind) == name) return kind;
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
          {"weight_decay", spec.weight_decay}};
}

OptimizerSpec optimizer_spec(const AttrMap& attrs) {
  const OptimizerSpec defaults;
  const auto number = [&](std::string_view name, float fallback) {
    return static_cast<float>(attrs.get(name, static_cast<double>(fallback)));
  };
  return {.kind = kind_from_name(attrs.require<std::string>("kind")),
          .momentum = number("momentum", defaults.momentum),
          .nesterov = attrs.get("nesterov", defaults.nesterov),
          .beta1 = number("beta1", defaults.beta1),
          .beta2 = number("beta2", defaults.beta2),
          .epsilon = number("epsilon", defaults.epsilon),
          .initial_accumulator = number("initial_accumulator", defaults.initial_accumulator),
          .weight_decay = number("weight_decay", defaults.weight_decay)};
}

}  // namespace braid
