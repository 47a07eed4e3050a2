// Max pooling first, on a device: what is done to each element of an image is done to the pooled one, which
// is a quarter of it or less.
//
//   MaxPool(f(x))                          -> f(MaxPool(x))             f does not fall, by element or
//   channel g(MaxPoolGrad(x, y, dy), x)            -> MaxPoolGrad(x, y, g(dy, y))     g is linear in the
//   gradient BiasAddGrad(MaxPoolGrad(x, y, dy))     -> BiasAddGrad(dy)
//
// So a block of convolution, bias, ReLU and pooling reads its large image once forward, and once backward.
// The first rule keeps bits; where several elements of a window are equal after f, such as the zeros of a
// ReLU, a gradient may go to another of them. The others add in another order where windows overlap. Images
// with NaN may have other gradients.
#include <algorithm>
#include <optional>

#include "engine/ir/op.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

const Pattern& max_pool() {
  static const Pattern pattern{"MaxPool"};
  return pattern;
}
const Pattern& max_pool_grad() {
  static const Pattern pattern{"MaxPoolGrad"};
  return pattern;
}
const Pattern& bias_of_layer() {
  static const Pattern pattern{"BiasAdd"};
  return pattern;
}
/// Functions that do not fall.
const Pattern& rising() {
  static const Pattern pattern{"Relu", "Relu6",   "LeakyRelu", "Elu",      "Selu",
                               "Tanh", "Sigmoid", "Softplus",  "Softsign", "BiasAdd"};
  return pattern;
}
/// Gradients of functions by element, linear in the gradient: input 0 is the gradient, input 1 what the slope
/// follows from.
const Pattern& gradient_first() {
  static const Pattern pattern{"ReluGrad", "Relu6Grad",    "LeakyReluGrad", "EluGrad",
                               "SeluGrad", "SoftplusGrad", "SoftsignGrad"};
  return pattern;
}
/// The same with the gradient as input 1.
const Pattern& gradient_second() {
  static const Pattern pattern{"TanhGrad", "SigmoidGrad"};
  return pattern;
}

std::string format_of(const Node& node) { return node.attrs.get<std::string>("data_format", "NHWC"); }

bool may_move(const Rewrite& r, const Node& node) {
  return is_plain(r.plan, node) && node.outputs.size() == 1 && node.outputs[0].shape.is_static();
}

/// Whether the gradient of the pool goes where the maxima are: its y is the pool of its x.
bool is_of_pool(const Rewrite& r, const Node& gradient) {
  const ValueRef y = gradient.inputs[1];
  const Node& pool = r.node(y.node);
  return max_pool().names(pool) && !pool.removed && pool.inputs[0] == gradient.inputs[0];
}

NodeId add_copy(Rewrite& r, Node node, const char* suffix) {
  node.name = r.graph.unique_name(node.name + suffix);
  node.id = kNoNode;
  node.outputs.clear();
  node.known_values.clear();
  return r.graph.add(std::move(node));
}

// --------------------------------------------------------------------------------------------------
// gradients

/// The input of a function's gradient that is the pool's.
template <int kGradient>
bool is_moved_gradient(const Rewrite& r, const Match& match) {
  const Node &function = r.node(match[0]), &pool = r.node(match[1]);
  return may_move(r, function) && may_move(r, pool) && together(function, pool) && r.is_for_one(pool.id) &&
         !r.users.is_named(pool.id) && function.inputs[1 - kGradient] == pool.inputs[0] &&
         is_of_pool(r, pool);
}

template <int kGradient>
void move_gradient(Rewrite& r, const Match& match) {
  Node function = r.node(match[0]), pool = r.node(match[1]);
  function.inputs[kGradient] = pool.inputs[2];
  function.inputs[1 - kGradient] = pool.inputs[1];
  pool.inputs[2] = {add_copy(r, std::move(function), "/pooled"), 0};
  replace(r.plan, match[0], std::move(pool), "/after");
  r.graph.remove(match[0]);
  r.graph.remove(match[1]);
}

bool is_sum_of_pool(const Rewrite& r, const Match& match) {
  const Node &sum = r.node(match[0]), &pool = r.node(match[1]);
  return may_move(r, sum) && is_plain(r.plan, pool) && format_of(sum) == format_of(pool) &&
         is_of_pool(r, pool);
}

void move_sum(Rewrite& r, const Match& match) {
  r.graph.mutable_node(match[0]).inputs[0] = r.node(match[1]).inputs[2];
}

// --------------------------------------------------------------------------------------------------
// forward

/// The gradients of the pool that read the function.
std::optional<std::vector<NodeId>> find_pooled(const Rewrite& r, const Match& match) {
  const Node &pool = r.node(match[0]), &function = r.node(match[1]);
  if (!may_move(r, pool) || !may_move(r, function) || !is_inner(r.plan, function.id) ||
      r.users.is_named(function.id) || !together(pool, function))
    return std::nullopt;
  if (bias_of_layer().names(function) && format_of(function) != format_of(pool)) return std::nullopt;
  if (function.attrs.get<double>("alpha", 0.2) < 0) return std::nullopt;
  std::vector<NodeId> gradients;
  for (const NodeId user : r.users.of(function.id)) {
    if (user == pool.id) continue;
    const Node& gradient = r.node(user);
    const bool is_of_this =
        max_pool_grad().names(gradient) && gradient.inputs[0] == ValueRef{function.id, 0} &&
        gradient.inputs[1] == ValueRef{pool.id, 0} && gradient.inputs[2] != ValueRef{function.id, 0};
    if (!is_of_this) return std::nullopt;
    gradients.push_back(user);
  }
  return gradients;
}

void move_function(Rewrite& r, const Match& match, const std::vector<NodeId>& gradients) {
  Node pool = r.node(match[0]), function = r.node(match[1]);
  const ValueRef x = function.inputs[0];
  pool.inputs[0] = x;
  const ValueRef pooled{add_copy(r, std::move(pool), "/first"), 0};
  function.inputs[0] = pooled;
  replace(r.plan, match[0], std::move(function), "/pooled");
  for (const NodeId id : gradients) {
    Node& gradient = r.graph.mutable_node(id);
    gradient.inputs[0] = x;
    gradient.inputs[1] = pooled;
  }
  r.graph.remove(match[0]);
  r.graph.remove(match[1]);
}

}  // namespace

void order_pools(Plan& plan) {
  const std::vector<Rule> gradients{
      {"gradient first", Pattern(gradient_first()).reading(0, max_pool_grad()), is_moved_gradient<0>,
       move_gradient<0>},
      {"gradient second", Pattern(gradient_second()).reading(1, max_pool_grad()), is_moved_gradient<1>,
       move_gradient<1>},
      {"sum", Pattern{"BiasAddGrad"}.reading(0, max_pool_grad()), is_sum_of_pool, move_sum}};
  const std::vector<Rule> functions{
      {"function", Pattern(max_pool()).reading(0, rising()), find_pooled, move_function}};
  // A function may lie behind another. The sum stays where it matches no more: it reads the pooled gradient.
  const int moved = apply_until_none_fits(plan, {gradients, functions});
  if (moved > 0) plan.note(std::to_string(moved) + " nodes come after max pooling, or before its gradient");
}

}  // namespace braid
