// Max pooling that keeps what it took (engine/ops/nn/pool_places.cc), on a device:
//
//   MaxPool(x), MaxPoolGrad(x, y, dy)  -> braid.MaxPoolPlaces(x), braid.MaxPoolPlacesGrad(places, dy)
//   MaxPool(x)                         -> braid.MaxPoolPlaces(x) that keeps none, under mixed precision
//
// The gradient then reads a byte an element of y, and not the images; and x, y and dy may be stored in any
// type. Gradients of volumes go to the first maximum where the graph says so; TensorFlow's, which go to each,
// stay. Values and gradients are the same.
#include <algorithm>

#include "engine/ir/op.h"
#include "engine/ops/nn/pooling.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

using Ints = std::vector<std::int64_t>;

const Pattern& volumes() {
  static const Pattern pattern{"MaxPool3D", "MaxPool3DGrad", "braid.MaxPoolPlaces3D"};
  return pattern;
}
const Pattern& pools_with_places() {
  static const Pattern pattern{"braid.MaxPoolPlaces", "braid.MaxPoolPlaces3D"};
  return pattern;
}
const Pattern& by_value() {
  static const Pattern pattern{"MaxPoolGrad", "MaxPool3DGrad"};
  return pattern;
}

/// What an attribute says of the windows, which is not whose gradient it is.
bool same_windows(const Node& pool, const Node& gradient) {
  const auto differs = [&](const char* name, const auto& fallback) {
    return pool.attrs.get(name, fallback) != gradient.attrs.get(name, fallback);
  };
  const std::string format = volumes().names(pool) ? "NDHWC" : "NHWC";
  return !differs("ksize", Ints{}) && !differs("strides", Ints{}) && !differs("explicit_paddings", Ints{}) &&
         !differs("padding", std::string()) && !differs("data_format", format);
}

bool may_keep(const Rewrite& r, const Node& pool) {
  const OutputInfo& images = r.graph.info(pool.inputs[0]);
  const bool is_float = images.dtype == DType::Float32 || images.dtype == DType::Float64;
  std::int64_t taps = 1;
  for (const std::int64_t k : pool.attrs.get("ksize", Ints{})) taps = std::min(taps * k, kMostPlaces + 1);
  return is_plain(r.plan, pool) && is_float && images.shape.is_static() && taps <= kMostPlaces;
}

bool is_gradient_of_pool(const Rewrite& r, const Match& match) {
  const Node &gradient = r.node(match[0]), &pool = r.node(match[1]);
  const bool goes_to_first = !volumes().names(gradient) || gradient.attrs.get("_first_maximum", false);
  return is_plain(r.plan, gradient) && may_keep(r, pool) && gradient.inputs[0] == pool.inputs[0] &&
         gradient.outputs[0].shape.is_static() && same_windows(pool, gradient) && goes_to_first;
}

/// The pool, as a node that has places.
NodeId with_places(Rewrite& r, NodeId id, bool keeps) {
  Node pool = r.node(id);
  if (pools_with_places().names(pool)) return id;
  pool.op =
      &OpRegistry::global().require(volumes().names(pool) ? "braid.MaxPoolPlaces3D" : "braid.MaxPoolPlaces");
  pool.attrs.set("keeps", keeps);
  const NodeId made = replace(r.plan, id, std::move(pool), "/places");
  r.graph.remove(id);
  return made;
}

void read_places(Rewrite& r, const Match& match) {
  const NodeId kept = with_places(r, match[1], true);
  Node gradient = r.node(match[0]);
  const Shape images = r.graph.info(gradient.inputs[0]).shape;
  gradient.op = &OpRegistry::global().require(volumes().names(gradient) ? "braid.MaxPoolPlacesGrad3D"
                                                                        : "braid.MaxPoolPlacesGrad");
  gradient.inputs = {{kept, 1}, gradient.inputs[2]};
  gradient.attrs.set("image_shape", Ints(images.dims().begin(), images.dims().end()));
  replace(r.plan, match[0], std::move(gradient), "/places");
  r.graph.remove(match[0]);
}

/// Whether no gradient looks for its values.
bool is_compared_by_none(const Rewrite& r, const Match& match) {
  const std::vector<NodeId>& users = r.users.of(match[0]);
  return may_keep(r, r.node(match[0])) && std::none_of(users.begin(), users.end(), [&](NodeId user) {
           return by_value().names(r.node(user)) && !r.node(user).removed;
         });
}

}  // namespace

void keep_pool_places(Plan& plan) {
  const Pattern pool{"MaxPool", "MaxPool3D", "braid.MaxPoolPlaces", "braid.MaxPoolPlaces3D"};
  const std::vector<Rule> gradients{
      {"gradient", Pattern(by_value()).reading(1, pool), is_gradient_of_pool, read_places}};
  Rewrite r(plan);
  const int trained = apply_rules(r, gradients, plan.program.graph.topological_order())[0];
  if (trained > 0)
    plan.note(std::to_string(trained) + " gradients of max pools read the places that were taken");
  if (plan.options.precision.half == DType::Float32) return;
  const std::vector<Rule> rest{
      {"values", Pattern{"MaxPool", "MaxPool3D"}, is_compared_by_none,
       [](Rewrite& rewrite, const Match& match) { with_places(rewrite, match[0], false); }}};
  Rewrite others(plan);
  apply_rules(others, rest, plan.program.graph.topological_order());
}

}  // namespace braid
