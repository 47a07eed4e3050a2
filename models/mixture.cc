#include "models/mixture.h"

#include "base/error.h"
#include "models/common.h"

namespace braid {
namespace {

/// x [E, rows, in] -> [E, rows, out], each expert by itself.
Output expert_layer(GraphBuilder& b, const std::string& name, const Output& x, std::int64_t experts,
                    std::int64_t in, std::int64_t out) {
  const NameScope scope(b, name);
  const Output kernel =
      b.read(b.variable("kernel", Shape{experts, in, out}, {.init = glorot_uniform(in, out)}));
  const Output bias = b.read(b.variable("bias", Shape{experts, 1, out}, {}));
  return b.add(b.op("BatchMatMulV2", {x, kernel}), bias);
}

Output sum_of_rows(GraphBuilder& b, const Output& x, bool keep) {
  const Output axis = b.constant(Tensor::scalar<std::int32_t>(1), "axis");
  return b.op("Sum", {x, axis}, {{"keep_dims", keep}});
}

}  // namespace

MixtureLayer mixture_layer(GraphBuilder& b, const std::string& name, const Output& x, std::int64_t dim,
                           std::int64_t hidden, const MixtureConfig& config) {
  const std::int64_t experts = config.experts, choices = config.choices;
  if (choices < 1 || choices > experts)
    throw InvalidArgument("mixture: " + std::to_string(choices) + " choices of " + std::to_string(experts) +
                          " experts");
  const NameScope scope(b, name);
  const AttrMap layer{
      {"experts", experts}, {"groups", config.groups}, {"capacity_factor", config.capacity_factor}};
  const Output gate =
      b.read(b.variable("gate/kernel", Shape{dim, experts}, {.init = glorot_uniform(dim, experts)}));
  const Output gates = b.op("Softmax", {b.matmul(x, gate)});
  const Output best =
      b.op("TopKV2", {gates, b.constant(Tensor::scalar(static_cast<std::int32_t>(choices)), "choices")}, {},
           "best");
  const Output weights = choices == 1 ? best : b.op("RealDiv", {best, sum_of_rows(b, best, true)});
  const Output slots = b.op("braid.RouteToExperts", {{best.node, 1}}, layer, "route");
  const Output rows = b.op("braid.DispatchTokens", {x, slots}, layer, "dispatch");
  const Output inner = b.relu(expert_layer(b, "inner", rows, experts, dim, hidden));
  const Output outer = expert_layer(b, "outer", inner, experts, hidden, dim);
  const Output load = b.op("StopGradient", {{slots.node, 1}});
  const Output balance = b.mul(b.reduce_mean(sum_of_rows(b, b.mul(load, gates), false)),
                               b.constant(Tensor::scalar(static_cast<float>(experts)), "experts"));
  return {b.op("braid.CombineTokens", {outer, slots, weights}, layer, "combine"), balance};
}

}  // namespace braid
