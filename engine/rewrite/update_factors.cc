// Updates of gradients that a number of the step multiplies, as clipping by the norm of all gradients does:
// the update multiplies by it, so that the product is never in memory and gradients of rows may stay halves.
//
//   ApplyOptimizer(w, slots..., Mul(g, s))            -> ApplyOptimizer(w, slots..., g, s), has_factor
//   SparseApplyOptimizer(w, slots..., i, Mul(v, s))   -> the same
//   updates of Unpack(Mul(x, s)), lane by lane        -> updates of Unpack(x)
//
// Not where elements are left out whose gradient is not a number (OptimizerSpec::skip_nan): s may be none.
#include <algorithm>
#include <optional>

#include "engine/ops/optimizer/optimizer_attrs.h"
#include "engine/ops/optimizer/update_inputs.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

const Pattern& updates_of_gradients() {
  static const Pattern pattern{"braid.ApplyOptimizer", "braid.SparseApplyOptimizer"};
  return pattern;
}

/// The place of the gradient's values among the inputs of an update that may get a factor.
std::optional<int> values_of(const Node& node) {
  static const Pattern sparse{"braid.SparseApplyOptimizer"};
  if (!updates_of_gradients().names(node) || node.attrs.get(kHasFactor, false) ||
      optimizer_spec(node.attrs).skip_nan)
    return std::nullopt;
  return value_inputs(node, sparse.names(node) ? 2 : 1)[0];
}

struct Product {
  ValueRef x, factor;
};

/// x s, of which s is a number that is not known before the step.
std::optional<Product> product_of(const Rewrite& r, NodeId id) {
  static const Pattern mul{"Mul"};
  const Node& node = r.node(id);
  if (!mul.names(node) || !r.is_for_one(id) || node.outputs[0].dtype != DType::Float32) return std::nullopt;
  for (const std::size_t at : {1, 0}) {
    const ValueRef x = node.inputs[1 - at], factor = node.inputs[at];
    const Shape& shape = r.graph.info(factor).shape;
    if (shape.has_rank() && shape.rank() == 0 && !r.graph.known_value(factor) &&
        r.graph.info(x).shape == node.outputs[0].shape)
      return Product{x, factor};
  }
  return std::nullopt;
}

std::optional<Product> of_one(const Rewrite& r, const Match& match) {
  const Node& node = r.node(match[0]);
  const auto at = values_of(node);
  if (!at) return std::nullopt;
  const ValueRef values = node.inputs[static_cast<std::size_t>(*at)];
  return product_of(r, values.node);
}

std::optional<Product> of_lanes(const Rewrite& r, const Match& match) {
  if (!is_inner(r.plan, match[0])) return std::nullopt;
  const std::vector<NodeId>& users = r.users.of(match[0]);
  const bool all = std::all_of(users.begin(), users.end(), [&](NodeId user) {
    const auto at = values_of(r.node(user));
    return at && std::count(users.begin(), users.end(), user) == 1 &&
           r.node(user).inputs[static_cast<std::size_t>(*at)].node == match[0];
  });
  return all ? product_of(r, match[1]) : std::nullopt;
}

void add_factor(Rewrite& r, NodeId id, ValueRef factor) {
  Node& node = r.graph.mutable_node(id);
  node.inputs.push_back(factor);
  node.attrs.set(kHasFactor, true);
}

}  // namespace

void find_update_factors(Plan& plan) {
  run_rules(plan, {.rules = {{"factor of an update", updates_of_gradients(), of_one,
                              [](Rewrite& r, const Match& match, const Product& product) {
                                const int at = *values_of(r.node(match[0]));
                                const ValueRef values = r.node(match[0]).inputs[static_cast<std::size_t>(at)];
                                replace_with(r.plan, values.node, product.x);
                                add_factor(r, match[0], product.factor);
                              }},
                             {"factor of lanes", Pattern{"Unpack"}.reading(0, {"Mul"}), of_lanes,
                              [](Rewrite& r, const Match& match, const Product& product) {
                                replace_with(r.plan, match[1], product.x);
                                for (const NodeId user : r.users.of(match[0]))
                                  add_factor(r, user, product.factor);
                              }}},
                   .text = [](const std::vector<int>& applied) {
                     return std::to_string(applied[0]) + " updates and the lanes of " +
                            std::to_string(applied[1]) + " multiply gradients themselves";
                   }});
}

}  // namespace braid
