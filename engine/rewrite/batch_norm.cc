// Batch norm of channels that are last as what regions can fuse, on a device that fuses:
//
//   FusedBatchNorm      -> braid.BatchNormStatistics, and y = (x - m) slope + offset element by element
//   FusedBatchNormGrad  -> sums of columns dy and dy (x - m), a few values a channel, and
//                          dx = slope ((dy - s / n) - (x - m) q) element by element
//
// So the activation behind, a residual, and the activation's gradient before are in one kernel with it, and
// what lies between is neither written nor read. Inference has no statistics: y follows from the variables.
// The names are those of engine/ops/nn/fused_batch_norm.cc.
#include <algorithm>

#include "engine/ir/op.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

const Pattern& forward() {
  static const Pattern pattern{"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"};
  return pattern;
}
const Pattern& backward() {
  static const Pattern pattern{"FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"};
  return pattern;
}

/// Nodes beside one that goes, on its stream.
class Writer {
 public:
  Writer(Rewrite& r, const Node& like) : r_(r), like_(like), dtype_(r.graph.info(like.inputs[0]).dtype) {}

  ValueRef op(std::string_view op, std::vector<ValueRef> inputs, AttrMap attrs = {}) {
    Node node = like_;
    node.op = &OpRegistry::global().require(op);
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    return {add_node(r_.graph, std::move(node), like_.name + "/" + std::string(op)), 0};
  }
  ValueRef scalar(double value) {
    Tensor tensor(dtype_, Shape{});
    if (dtype_ == DType::Float32)
      tensor.data<float>()[0] = static_cast<float>(value);
    else
      tensor.data<double>()[0] = value;
    return constant(std::move(tensor));
  }
  ValueRef axes() {
    const std::vector<std::int32_t> all{0, 1, 2};
    return constant(Tensor::from<std::int32_t>(Shape{3}, all));
  }
  ValueRef subtract(ValueRef a, ValueRef b) { return op("Sub", {a, b}); }
  ValueRef multiply(ValueRef a, ValueRef b) { return op("Mul", {a, b}); }
  ValueRef add(ValueRef a, ValueRef b) { return op("AddV2", {a, b}); }

 private:
  ValueRef constant(Tensor value) {
    Node node;
    node.op = &OpRegistry::global().require("Const");
    node.attrs = {{"dtype", value.dtype()}, {"value", std::move(value)}};
    node.device = like_.device;
    node.name = r_.graph.unique_name(like_.name + "/constant");
    return {r_.graph.add(std::move(node)), 0};
  }

  Rewrite& r_;
  const Node like_;
  const DType dtype_;
};

bool is_training(const Node& node) { return node.attrs.get<bool>("is_training", true); }
double epsilon_of(const Node& node) { return node.attrs.get<double>("epsilon", 1e-4); }

/// Whether a node waits for it by a control edge. Who is colocated with it is so with what takes its place.
bool is_awaited(const Rewrite& r, NodeId id) {
  const std::vector<NodeId>& users = r.users.of(id);
  return std::any_of(users.begin(), users.end(), [&](NodeId user) {
    const std::vector<NodeId>& controls = r.node(user).control_inputs;
    return std::find(controls.begin(), controls.end(), id) != controls.end();
  });
}

/// Of channels that are last, and some of everything. `x` is the input that holds the images.
bool may_split(const Rewrite& r, const Node& node, int x) {
  const OutputInfo& images = r.graph.info(node.inputs[static_cast<std::size_t>(x)]);
  const std::vector<NodeId>& targets = r.plan.targets;
  const bool is_target = std::find(targets.begin(), targets.end(), node.id) != targets.end();
  return is_plain(r.plan, node) && !is_target && !is_awaited(r, node.id) && images.shape.is_static() &&
         images.shape.elements() > 1 && images.shape[3] > 1 &&
         node.attrs.get<std::string>("data_format", "NHWC") == "NHWC";
}

/// Whether nobody reads outputs from `first` on.
bool uses_none_from(const Rewrite& r, NodeId id, int first) {
  for (const NodeId user : r.users.of(id))
    for (const ValueRef input : r.node(user).inputs)
      if (!r.node(user).removed && input.node == id && input.output >= first) return false;
  for (const ValueRef fetch : r.plan.fetches)
    if (fetch.node == id && fetch.output >= first) return false;
  return true;
}

bool is_gradient(const Rewrite& r, const Match& match) {
  constexpr int kZeros = 3;  // TensorFlow's reserves
  return may_split(r, r.node(match[0]), 1) && uses_none_from(r, match[0], kZeros);
}

void split_gradient(Rewrite& r, const Match& match) {
  const Node node = r.node(match[0]);
  const ValueRef dy = node.inputs[0], x = node.inputs[1], scale = node.inputs[2], mean = node.inputs[3],
                 variance = node.inputs[4];
  Writer w(r, node);
  const Shape shape = r.graph.info(x).shape;
  const auto n = static_cast<double>(shape.elements() / shape[3]);
  const ValueRef axes = w.axes();
  const ValueRef sum = w.op("Sum", {dy, axes});
  // x - m is made twice: what sums it is not the kernel that uses it again.
  const ValueRef moment = w.op("Sum", {w.multiply(dy, w.subtract(x, mean)), axes});
  const ValueRef inverse = w.op("Rsqrt", {w.add(variance, w.scalar(epsilon_of(node)))});
  const ValueRef d_scale = w.multiply(moment, inverse), slope = w.multiply(scale, inverse);
  ValueRef dx = dy;
  if (is_training(node)) {
    const ValueRef share = w.scalar(1 / n);
    const ValueRef level = w.multiply(sum, share);
    const ValueRef tilt = w.multiply(w.multiply(d_scale, inverse), share);
    dx = w.subtract(w.subtract(dy, level), w.multiply(w.subtract(x, mean), tilt));
  }
  dx = w.multiply(dx, slope);
  replace_value(r.plan, {node.id, 0}, dx);
  replace_value(r.plan, {node.id, 1}, d_scale);
  replace_value(r.plan, {node.id, 2}, sum);
  take_place(r.plan, node.id, dx.node);
  r.graph.remove(node.id);
}

bool is_forward(const Rewrite& r, const Match& match) {
  constexpr int kReserve = 5;
  return may_split(r, r.node(match[0]), 0) && uses_none_from(r, match[0], kReserve);
}

void split_forward(Rewrite& r, const Match& match) {
  const Node node = r.node(match[0]);
  const ValueRef x = node.inputs[0], scale = node.inputs[1], offset = node.inputs[2], mean = node.inputs[3],
                 variance = node.inputs[4];
  Writer w(r, node);
  ValueRef centre = mean, slope;
  if (is_training(node)) {
    const ValueRef made = w.op("braid.BatchNormStatistics", {x, scale, mean, variance}, node.attrs);
    for (int o = 1; o < 5; ++o) replace_value(r.plan, {node.id, o}, {made.node, o - 1});
    centre = {made.node, 2};
    slope = {made.node, 4};
  } else {
    slope = w.multiply(scale, w.op("Rsqrt", {w.add(variance, w.scalar(epsilon_of(node)))}));
    for (const int o : {1, 3}) replace_value(r.plan, {node.id, o}, mean);
    for (const int o : {2, 4}) replace_value(r.plan, {node.id, o}, variance);
  }
  const ValueRef y = w.add(w.multiply(w.subtract(x, centre), slope), offset);
  replace_value(r.plan, {node.id, 0}, y);
  take_place(r.plan, node.id, y.node);
  r.graph.remove(node.id);
}

}  // namespace

void split_batch_norms(Plan& plan) {
  if (!plan.options.fusion) return;
  // Gradients first: they use what of the forward node is left out.
  int gradients = 0, nodes = 0;
  const auto applied = [&](Pattern pattern, auto guard, auto build) {
    Rewrite rewrite(plan);
    const std::vector<Rule> rules{{"batch norm", std::move(pattern), guard, build}};
    return apply_rules(rewrite, rules, plan.program.graph.topological_order())[0];
  };
  gradients = applied(backward(), is_gradient, split_gradient);
  nodes = applied(forward(), is_forward, split_forward);
  if (gradients + nodes > 0)
    plan.note(std::to_string(nodes) + " nodes and " + std::to_string(gradients) +
              " gradients became elementwise nodes and sums");
}

}  // namespace braid
