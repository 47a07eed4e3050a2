#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/rewrite/rule.h"

namespace braid {
namespace {

constexpr std::size_t kRowAlignment = 16;   // bytes
constexpr double kSmallestProduct = 200e6;  // flops, forward; below, more launches cost what alignment gains

const Pattern& concat() {
  static const Pattern pattern{"ConcatV2"};
  return pattern;
}
const Pattern& plain_product() {
  static const Pattern pattern{"MatMul"};
  return pattern;
}

bool flag(const Node& node, const char* name) { return node.attrs.get<bool>(name, false); }
Node with_inputs(Node node, std::vector<ValueRef> inputs) {
  node.inputs = std::move(inputs);
  return node;
}
/// Elements of a row of 16 bytes, as products will read them.
std::int64_t row_alignment(const Rewrite& r) {
  return static_cast<std::int64_t>(kRowAlignment / dtype_size(r.plan.options.precision.half));
}
std::int64_t aligned(const Rewrite& r, std::int64_t width) {
  const std::int64_t to = row_alignment(r);
  return (width + to - 1) / to * to;
}

bool joins_columns(const Rewrite& r, const Node& concat) {
  const Tensor* axis = r.graph.known_value(concat.inputs.back());
  return axis && (tensor_to_int64s(*axis)[0] == 1 || tensor_to_int64s(*axis)[0] == -1);
}

struct Products {
  std::vector<NodeId> forward, backward;  // products with it, and gradients of their other factors
};

std::optional<Products> find_padded(const Rewrite& r, const Match& match) {
  const Node& joined = r.node(match[0]);
  const OutputInfo& info = joined.outputs[0];
  if (!is_plain(r.plan, joined) || is_fetched(r.plan, joined.id) || info.dtype != DType::Float32 ||
      info.shape.rank() != 2 || !info.shape.is_static() || info.shape[1] % row_alignment(r) == 0 ||
      (concat().names(joined) && !joins_columns(r, joined)))
    return std::nullopt;
  Products products;
  double largest = 0;
  for (const NodeId user : r.users.readers(joined.id)) {
    const Node& product = r.node(user);
    if (!plain_product().names(product) || !is_plain(r.plan, product) ||
        product.inputs[0] != ValueRef{joined.id, 0} || product.inputs[1].node == joined.id)
      return std::nullopt;
    (flag(product, "transpose_a") ? products.backward : products.forward).push_back(user);
    largest = std::max(largest, 2.0 * static_cast<double>(info.shape.elements()) *
                                    static_cast<double>(product.outputs[0].shape[1]));
  }
  if (products.forward.empty() || largest < kSmallestProduct) return std::nullopt;
  return products;
}

// ----------------------------------------------------------------------------------------------------- build

ValueRef add_constant(Rewrite& r, const Node& near, const std::string& name, Tensor value) {
  Node node;
  node.op = &OpRegistry::global().require("Const");
  node.attrs = {{"dtype", value.dtype()}, {"value", std::move(value)}};
  node.device = near.device;
  return {add_node(r.graph, std::move(node), name), 0};
}

NodeId widen(Rewrite& r, const Node& joined) {
  const Shape& shape = joined.outputs[0].shape;
  Node wide = joined;
  if (concat().names(joined)) {
    const ValueRef zeros =
        add_constant(r, joined, joined.name + "/zeros",
                     Tensor::zeros(DType::Float32, {shape[0], aligned(r, shape[1]) - shape[1]}));
    wide.inputs.insert(wide.inputs.end() - 1, zeros);
  } else {
    wide.attrs.set("width", aligned(r, shape[1]));
  }
  return add_node(r.graph, std::move(wide), joined.name + "/aligned");
}

/// Whether this is the gradient of the product's first factor, whose columns are only cut off.
bool is_input_gradient(const Rewrite& r, NodeId id, const Node& product, const Shape& shape) {
  static const Pattern split{"braid.SplitLike"}, pair_dots_grad{"braid.PairDotsGrad"};
  const Node& gradient = r.node(id);
  if (!plain_product().names(gradient) || gradient.removed || gradient.inputs[1] != product.inputs[1] ||
      flag(gradient, "transpose_a") || flag(gradient, "transpose_b") == flag(product, "transpose_b") ||
      gradient.outputs[0].shape != shape || !is_plain(r.plan, gradient) || is_fetched(r.plan, id))
    return false;
  const std::vector<NodeId>& users = r.users.of(id);
  return !users.empty() && std::all_of(users.begin(), users.end(), [&](NodeId user) {
    const Node& node = r.node(user);
    if (split.names(node))
      return node.inputs[1].node == id &&
             std::count(node.inputs.begin(), node.inputs.end(), ValueRef{id, 0}) == 1;
    return pair_dots_grad.names(node) && node.inputs[0].node == id && node.inputs[1].node != id;
  });
}

void widen_forward(Rewrite& r, NodeId id, ValueRef wide, const Shape& shape) {
  const Node product = r.node(id);
  const bool transposed = flag(product, "transpose_b");
  const auto zeros = static_cast<std::int32_t>(aligned(r, shape[1]) - shape[1]);
  Node pad = product;
  pad.op = &OpRegistry::global().require("Pad");
  pad.attrs = {};
  pad.inputs = {product.inputs[1],
                add_constant(r, product, product.name + "/paddings",
                             Tensor::from<std::int32_t>(
                                 {2, 2}, std::array{0, transposed ? 0 : zeros, 0, transposed ? zeros : 0}))};
  const ValueRef padded{add_node(r.graph, std::move(pad), product.name + "/padded"), 0};
  for (const NodeId user : r.users.of(product.inputs[1].node))
    if (is_input_gradient(r, user, product, shape))
      replace(r.plan, user, with_inputs(r.node(user), {r.node(user).inputs[0], padded}), "/aligned");
  replace(r.plan, id, with_inputs(product, {wide, padded}), "/aligned");
}

void build_padded(Rewrite& r, const Match& match, const Products& products) {
  const Node joined = r.node(match[0]);
  const Shape shape = joined.outputs[0].shape;
  const ValueRef wide{widen(r, joined), 0};
  take_place(r.plan, joined.id, wide.node);
  for (const NodeId product : products.forward) widen_forward(r, product, wide, shape);
  for (const NodeId product : products.backward) {
    const Node old = r.node(product);
    Node first = old;
    first.op = &OpRegistry::global().require("braid.LeadingRows");
    first.attrs = {{"rows", shape[1]}};
    first.inputs = {{add_node(r.graph, with_inputs(old, {wide, old.inputs[1]}), old.name + "/aligned"), 0}};
    replace(r.plan, product, std::move(first), "/rows");
  }
}

}  // namespace

void pad_gemms(Plan& plan) {
  run_rules(plan,
            {.rules = {{"zeros beside columns", {"ConcatV2", "braid.PairDots"}, find_padded, build_padded}},
             .text = [](const std::vector<int>& applied) {
               return "zeros beside " + std::to_string(applied[0]) + " factors of products";
             }});
}

}  // namespace braid
