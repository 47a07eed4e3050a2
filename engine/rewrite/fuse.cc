// On a device, short kernels cost more by their number than by their work: puts chains of nodes into one.
//   MatMul, BiasAdd(, Relu)        -> braid.FusedMatMul, where nobody else uses what is between
//   the same of batched siblings   -> braid.FusedMatMul of lanes (horizontal_fusion.h)
//   MatMul(, Reshape), AddV2       -> braid.FusedMatMul(, Reshape), where a vector is added and the sum has
//                                     a reader that is in no region, such as attention
//   Conv2D, BiasAdd(, AddV2)(, Relu) -> braid.FusedConv2D; what AddV2 adds is of the same shape
//   Conv2D, Reshape, BiasAdd(, AddV2)(, Relu) -> braid.FusedConv2D, Reshape: convolutions of sequences
//   ReluGrad and its BiasAddGrad   -> braid.ReluBiasGrad, of lanes too
// Left apart: nodes on different hand-set streams, devices or colocations, nodes with control edges, fetched
// or fed values between. A fused layer has the name of its last node, a gradient that of its ReluGrad.
#include "engine/rewrite/fuse.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/fusion/rules.h"
#include "engine/rewrite/horizontal_fusion.h"
#include "engine/rewrite/reshape_node.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

const Pattern& matmul() {
  static const Pattern pattern{"MatMul"};
  return pattern;
}
const Pattern& bias_add() {
  static const Pattern pattern{"BiasAdd"};
  return pattern;
}
const Pattern& relu() {
  static const Pattern pattern{"Relu"};
  return pattern;
}
const Pattern& relu_grad() {
  static const Pattern pattern{"ReluGrad"};
  return pattern;
}
const Pattern& bias_add_grad() {
  static const Pattern pattern{"BiasAddGrad"};
  return pattern;
}

bool has_plain_output(const Rewrite& r, const Node& node) {
  return node.outputs.size() == 1 && is_plain(r.plan, node);
}
/// Whether the node may vanish into the one that uses it.
bool may_vanish(const Rewrite& r, const Node& node) {
  return node.outputs.size() == 1 && r.is_for_one(node.id) && !r.users.is_named(node.id);
}
bool forward_together(const Node& a, const Node& b) {
  return together(a, b) && a.include_grad == b.include_grad;
}
bool is_float(const Rewrite& r, ValueRef value) {
  const DType dtype = r.graph.info(value).dtype;
  return dtype == DType::Float32 || dtype == DType::Float64;
}
bool channels_last(const Node& node) { return node.attrs.get<std::string>("data_format", "NHWC") == "NHWC"; }

// -----------------------------------------------------------------------------------------------------
// layers

struct Layer {
  NodeId product, bias_add, relu;  // relu: none where the layer ends before
  ValueRef bias;
};

std::optional<Layer> layer_of(const Rewrite& r, const Node& product, const Node& bias_add, ValueRef bias) {
  if (!may_vanish(r, product) || !forward_together(product, bias_add)) return std::nullopt;
  Layer layer{product.id, bias_add.id, kNoNode, bias};
  if (!may_vanish(r, bias_add)) return layer;
  const Node& next = r.node(r.users.of(bias_add.id)[0]);
  if (relu().names(next) && has_plain_output(r, next) && forward_together(next, bias_add))
    layer.relu = next.id;
  return layer;
}

std::optional<Layer> find_layer(const Rewrite& r, const Match& match) {
  const Node &bias_add = r.node(match[0]), &product = r.node(match[1]);
  if (!has_plain_output(r, bias_add) || !channels_last(bias_add) || !is_float(r, bias_add.inputs[0]))
    return std::nullopt;
  return layer_of(r, product, bias_add, bias_add.inputs[1]);
}

/// Of an AddV2 of products [lanes, m, n], and biases [lanes, n] seen as [lanes, 1, n], or [n].
std::optional<Layer> find_lanes(const Rewrite& r, const Match& match) {
  static const Pattern reshape{"Reshape"};
  const Node &sum = r.node(match[0]), &product = r.node(match[1]);
  if (!has_plain_output(r, sum) || !is_float(r, sum.inputs[0])) return std::nullopt;
  const Shape& out = product.outputs[0].shape;
  if (out.rank() != 3 || out != sum.outputs[0].shape) return std::nullopt;
  for (const ValueRef input : product.inputs) {
    const Shape& shape = r.graph.info(input).shape;
    if (shape.rank() != 2 && shape[0] != out[0]) return std::nullopt;
  }
  ValueRef bias = sum.inputs[1];
  const Node& before = r.node(bias.node);
  if (r.graph.info(bias).shape == Shape{out[0], 1, out[2]} && reshape.names(before)) {
    bias = before.inputs[0];
    if (r.graph.info(bias).shape != Shape{out[0], out[2]}) return std::nullopt;
  } else if (r.graph.info(bias).shape != Shape{out[2]}) {
    return std::nullopt;
  }
  return layer_of(r, product, sum, bias);
}

/// A product of rows, seen as more axes or not, to which a vector is added.
struct RowLayer {
  NodeId product, view;  // view: the product where there is none
  ValueRef bias;
};

/// Whether nobody but one node reads more of it than its shape.
bool has_one_reader(const Rewrite& r, const Node& node) {
  return node.outputs.size() == 1 && is_inner(r.plan, node.id) && !r.users.is_named(node.id) &&
         r.users.readers(node.id).size() == 1;
}

/// Whether somebody reads the node, or views of it, whom no region can take.
bool has_apart_reader(const Rewrite& r, NodeId id) {
  static const Pattern view{"Reshape"};
  return std::ranges::any_of(r.users.readers(id), [&](NodeId reader) {
    const Node& node = r.node(reader);
    if (node.removed) return false;
    return view.names(node) ? has_apart_reader(r, reader) : !fusion::rules().find(node.op->name);
  });
}

std::optional<RowLayer> find_row_layer(const Rewrite& r, const Match& match) {
  static const Pattern view{"Reshape"};
  const Node& sum = r.node(match[0]);
  const Shape& out = sum.outputs[0].shape;
  if (!has_plain_output(r, sum) || !is_float(r, sum.inputs[0]) || out.rank() < 2) return std::nullopt;
  for (const std::size_t at : {0, 1}) {
    const ValueRef value = sum.inputs[at], bias = sum.inputs[1 - at];
    const Node& before = r.node(value.node);
    const Node& product = r.node(view.names(before) ? before.inputs[0].node : before.id);
    if (!matmul().names(product) || product.outputs[0].shape.rank() != 2) continue;
    const std::int64_t columns = product.outputs[0].shape[1];
    if (columns < 0 || r.graph.info(bias).shape != Shape{columns} || r.graph.info(value).shape != out ||
        out[out.rank() - 1] != columns)
      continue;
    if (!has_one_reader(r, product) || !has_one_reader(r, before) || !forward_together(product, sum) ||
        !forward_together(before, sum) || follows_from(r.graph, bias.node, product.id))
      continue;
    if (r.plan.options.fusion && !has_apart_reader(r, sum.id)) continue;
    return RowLayer{product.id, before.id, bias};
  }
  return std::nullopt;
}

void build_row_layer(Rewrite& r, const Match& match, const RowLayer& layer) {
  const Node& product = r.node(layer.product);
  const MatrixProduct& form = product.op->product;
  Node fused = product;
  fused.op = &OpRegistry::global().require("braid.FusedMatMul");
  fused.attrs = {{"transpose_a", product.attrs.get<bool>(form.transpose_a, false)},
                 {"transpose_b", product.attrs.get<bool>(form.transpose_b, false)},
                 {"relu", false}};
  fused.inputs = {product.inputs[0], product.inputs[1], layer.bias};
  const NodeId made = replace(r.plan, layer.product, std::move(fused), "/fused");
  replace_with(r.plan, match[0], {layer.view == layer.product ? made : layer.view, 0});
  r.graph.remove(match[0]);
  r.graph.remove(layer.product);
}

void build_layer(Rewrite& r, const Match&, const Layer& layer) {
  const bool ends_in_relu = layer.relu != kNoNode;
  const NodeId last = ends_in_relu ? layer.relu : layer.bias_add;
  const Node& product = r.node(layer.product);
  const MatrixProduct& form = product.op->product;
  Node fused = r.node(last);
  const Attr* lanes = r.node(last).attrs.find(kLanes);
  fused.op = &OpRegistry::global().require("braid.FusedMatMul");
  fused.attrs = {{"transpose_a", product.attrs.get<bool>(form.transpose_a, false)},
                 {"transpose_b", product.attrs.get<bool>(form.transpose_b, false)},
                 {"relu", ends_in_relu}};
  if (lanes) fused.attrs.set(kLanes, *lanes);
  fused.inputs = {product.inputs[0], product.inputs[1], layer.bias};
  const NodeId made = replace(r.plan, last, std::move(fused), "/fused");
  for (const NodeId inner : {layer.bias_add, layer.product})
    if (inner != last) take_place(r.plan, inner, made);
  if (ends_in_relu) r.graph.remove(layer.relu);
  r.graph.remove(layer.bias_add);
  r.graph.remove(layer.product);
}

// --------------------------------------------------------------------------------------------------
// layers of convolutions

struct ImageLayer {
  NodeId bias_add, last;          // last: what the layer ends in
  std::vector<NodeId> inner;      // what goes besides
  std::optional<ValueRef> other;  // what is added
  bool relu = false;
};

/// The node that alone uses `node` and may be part of its layer, if any.
const Node* next_of(const Rewrite& r, const Node& node) {
  if (!may_vanish(r, node)) return nullptr;
  const Node& next = r.node(r.users.of(node.id)[0]);
  return has_plain_output(r, next) && forward_together(next, node) ? &next : nullptr;
}

/// Takes what follows a bias into the layer: a sum with a value of the same shape, and a ReLU.
void extend(const Rewrite& r, const Node& bias_add, ImageLayer& layer) {
  static const Pattern add{"AddV2", "Add"};
  const auto append = [&](const Node& next) {
    layer.inner.push_back(layer.last);
    layer.last = next.id;
  };
  const Node* next = next_of(r, bias_add);
  if (next && add.names(*next)) {
    const ValueRef other = next->inputs[next->inputs[0].node == bias_add.id ? 1 : 0];
    if (other.node != bias_add.id && r.graph.info(other).shape == bias_add.outputs[0].shape &&
        next->outputs[0].shape == bias_add.outputs[0].shape) {
      layer.other = other;
      append(*next);
      next = next_of(r, *next);
    }
  }
  if (next && relu().names(*next)) {
    layer.relu = true;
    append(*next);
  }
}

std::optional<ImageLayer> find_image_layer(const Rewrite& r, const Match& match) {
  const Node &bias_add = r.node(match[0]), &convolution = r.node(match[1]);
  const auto format = [](const Node& node) { return node.attrs.get<std::string>("data_format", "NHWC"); };
  if (!has_plain_output(r, bias_add) || !has_plain_output(r, convolution) || !may_vanish(r, convolution) ||
      !forward_together(convolution, bias_add) || format(convolution) != format(bias_add) ||
      r.graph.info(bias_add.inputs[0]).dtype != DType::Float32)
    return std::nullopt;
  ImageLayer layer{.bias_add = bias_add.id, .last = bias_add.id, .inner = {convolution.id}, .other = {}};
  extend(r, bias_add, layer);
  return layer;
}

void build_image_layer(Rewrite& r, const Match& match, const ImageLayer& layer) {
  const Node& convolution = r.node(match[1]);
  Node fused = r.node(layer.last);
  fused.op = &OpRegistry::global().require("braid.FusedConv2D");
  fused.attrs = convolution.attrs;
  fused.attrs.set("relu", layer.relu);
  fused.inputs = {convolution.inputs[0], convolution.inputs[1], r.node(layer.bias_add).inputs[1]};
  if (layer.other) fused.inputs.push_back(*layer.other);
  const NodeId made = replace(r.plan, layer.last, std::move(fused), "/fused");
  for (const NodeId inner : layer.inner) take_place(r.plan, inner, made);
  r.graph.remove(layer.last);
  for (auto inner = layer.inner.rbegin(); inner != layer.inner.rend(); ++inner) r.graph.remove(*inner);
}

/// Of a sequence, which was an image of one row for its convolution.
std::optional<ImageLayer> find_sequence_layer(const Rewrite& r, const Match& match) {
  const Node &bias_add = r.node(match[0]), &view = r.node(match[1]), &convolution = r.node(match[2]);
  const Shape &made = convolution.outputs[0].shape, &seen = bias_add.outputs[0].shape;
  if (!has_plain_output(r, bias_add) || !has_one_reader(r, view) || !has_one_reader(r, convolution) ||
      !is_plain(r.plan, view) || !is_plain(r.plan, convolution) || !forward_together(convolution, bias_add) ||
      !channels_last(convolution) || !channels_last(bias_add) ||
      r.graph.info(bias_add.inputs[0]).dtype != DType::Float32 || !made.is_static() || !seen.is_static() ||
      made[made.rank() - 1] != seen[seen.rank() - 1])
    return std::nullopt;
  ImageLayer layer{.bias_add = bias_add.id, .last = bias_add.id, .inner = {convolution.id}, .other = {}};
  extend(r, bias_add, layer);
  return layer;
}

void build_sequence_layer(Rewrite& r, const Match& match, const ImageLayer& layer) {
  const NodeId view = match[1];
  Node fused = r.node(match[2]);
  fused.op = &OpRegistry::global().require("braid.FusedConv2D");
  fused.attrs.set("relu", layer.relu);
  fused.inputs.push_back(r.node(layer.bias_add).inputs[1]);
  if (layer.other) {
    Node added = reshape_node(r.graph, r.node(view), *layer.other, fused.outputs[0].shape);
    fused.inputs.push_back({add_node(r.graph, std::move(added), r.node(layer.last).name + "/added"), 0});
  }
  const NodeId made = add_node(r.graph, std::move(fused), r.node(layer.last).name + "/layer");
  Node seen = r.node(view);
  seen.inputs[0] = {made, 0};
  replace(r.plan, layer.last, std::move(seen), "/fused");
  for (const NodeId inner : layer.inner) take_place(r.plan, inner, made);
  r.graph.remove(layer.last);
  for (auto inner = layer.inner.rbegin(); inner != layer.inner.rend(); ++inner)
    if (*inner != match[2]) r.graph.remove(*inner);
  r.graph.remove(view);
  r.graph.remove(match[2]);
}

// --------------------------------------------------------------------------------------------------
// gradients

/// Over axis 1 of three, which is gone.
bool is_sum_of_rows(const Rewrite& r, const Node& sum) {
  const Tensor* axes = r.graph.known_value(sum.inputs[1]);
  if (!axes || axes->elements() != 1 || sum.attrs.get<bool>("keep_dims", false)) return false;
  const std::int64_t axis = tensor_to_int64s(*axes)[0];
  return axis == 1 || axis == -2;
}

/// Of a BiasAddGrad [m, n] or, of lanes [lanes, m, n], a Sum.
bool is_relu_gradient(const Rewrite& r, const Match& match) {
  const Node &sums = r.node(match[0]), &relu = r.node(match[1]);
  const bool of_lanes = !bias_add_grad().names(sums);
  return has_plain_output(r, sums) && channels_last(sums) && has_plain_output(r, relu) &&
         is_float(r, relu.inputs[0]) && together(relu, sums) &&
         relu.outputs[0].shape.rank() == (of_lanes ? 3 : 2) && (!of_lanes || is_sum_of_rows(r, sums));
}

void build_gradient(Rewrite& r, const Match& match) {
  const NodeId sums = match[0], relu = match[1];
  Node fused = r.node(relu);
  const Attr* lanes = r.node(relu).attrs.find(kLanes);
  fused.op = &OpRegistry::global().require("braid.ReluBiasGrad");
  fused.attrs = {};
  if (lanes) fused.attrs.set(kLanes, *lanes);
  const NodeId made = replace(r.plan, relu, std::move(fused), "/fused");
  r.graph.remove(relu);
  replace_with(r.plan, sums, {made, 1});
  r.graph.remove(sums);
}

}  // namespace

bool fuses_into_input(const Graph& graph, const Node& node,
                      const std::function<bool(ValueRef)>& is_used_once) {
  if (node.inputs.empty()) return false;
  const Node& before = graph.node(node.inputs[0].node);
  if (bias_add_grad().names(node)) return relu_grad().names(before);
  if (!bias_add().names(node) && !relu().names(node)) return false;
  if (!is_used_once(node.inputs[0])) return false;
  return bias_add().names(node) ? matmul().names(before)
                                : bias_add().names(before) && fuses_into_input(graph, before, is_used_once);
}

void fuse(Plan& plan) {
  run_rules(
      plan,
      {.rules = {{"layer", Pattern(bias_add()).reading(0, matmul()), find_layer, build_layer},
                 {"layer of lanes", Pattern{"AddV2"}.reading(0, {"BatchMatMulV2"}), find_lanes, build_layer},
                 {"layer of rows", Pattern{"AddV2", "Add"}, find_row_layer, build_row_layer},
                 {"gradient", Pattern{"BiasAddGrad", "Sum"}.reading(0, relu_grad()), is_relu_gradient,
                  build_gradient},
                 {"layer of images", Pattern(bias_add()).reading(0, {"Conv2D"}), find_image_layer,
                  build_image_layer},
                 {"layer of sequences",
                  Pattern(bias_add()).reading(0, Pattern{"Reshape", "Squeeze"}.reading(0, {"Conv2D"})),
                  find_sequence_layer, build_sequence_layer}},
       .text =
           [](const std::vector<int>& applied) {
             return std::to_string(applied[0] + applied[1] + applied[2] + applied[4] + applied[5]) +
                    " layers, " + std::to_string(applied[3]) + " gradients of their biases";
           },
       .prunes = false});
}

}  // namespace braid
