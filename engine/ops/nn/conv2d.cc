// Conv2D(images, filter [h, w, in / groups, out]) and its gradients Conv2DBackpropInput(sizes, filter, dy)
// and Conv2DBackpropFilter(images, sizes, dy); DepthwiseConv2dNative(images, filter [h, w, in, multiplier])
// and its two; Conv3D(volumes, filter [d, h, w, in / groups, out]), Conv3DBackpropInputV2 and
// Conv3DBackpropFilterV2. Attributes strides, dilations, padding, explicit_paddings, data_format
// (engine/ops/common/window.h), filter_format (HWIO, or OHWI: convolution.h). The three of a family are each
// other's gradients. float32.
#include <fmt/format.h>

#include "engine/ops/common/halves.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/nn/convolution.h"

namespace braid {
namespace {

bool is_depthwise(const Node& node) { return node.op->name.starts_with("Depthwise"); }

bool is_volume(const Node& node) { return node.op->name.starts_with("Conv3D"); }

/// Axes of images, volumes and their filters.
int rank_of(const Node& node) { return is_volume(node) ? 5 : 4; }

Shape unknown_image(const Node& node) {
  return Shape(std::vector<std::int64_t>(static_cast<std::size_t>(rank_of(node)), Shape::kUnknown));
}

Shape shape_or_unknown(const Node& node, const Shape& shape) {
  return shape.has_rank() ? shape : unknown_image(node);
}

Shape output_shape(const Convolution& conv) {
  return image_shape(conv.window.axes, conv.batch, conv.out_h, conv.out_w, conv.out_c, conv.out_d);
}

Fail fail_of(const InferContext& c) {
  return [&c](const std::string& message) { c.fail(message); };
}

void infer_forward(InferContext& c) {
  for (int i : {0, 1}) {
    require_dtype(c, i, {DType::Float32});
    c.require_rank(i, rank_of(c.node()));
  }
  c.output(DType::Float32,
           output_shape(make_convolution(c.node(), shape_or_unknown(c.node(), c.shape(0)),
                                         shape_or_unknown(c.node(), c.shape(1)), fail_of(c))));
}

/// The shape in input `i`, if it is known.
Shape shape_value(const InferContext& c, int i) {
  c.require_rank(i, 1);
  require_dtype(c, i, {DType::Int32, DType::Int64});
  if (!c.value(i)) return unknown_image(c.node());
  const Shape shape(tensor_to_int64s(*c.value(i)));
  const int rank = rank_of(c.node());
  if (shape.rank() != rank)
    c.fail(fmt::format("input {} must hold {} numbers, got {}", i, rank, shape.rank()));
  return shape;
}

void infer_backward(InferContext& c, const Shape& in, const Shape& filter, const Shape& result) {
  require_dtype(c, 2, {DType::Float32});
  for (const Shape* shape : {&in, &filter})
    if (shape->has_rank() && shape->rank() != rank_of(c.node()))
      c.fail(fmt::format("images and filters have {} axes, got {}", rank_of(c.node()), shape->to_string()));
  const Shape expected = output_shape(make_convolution(c.node(), shape_or_unknown(c.node(), in),
                                                       shape_or_unknown(c.node(), filter), fail_of(c)));
  Shape merged;
  if (!merge_shapes(expected, c.shape(2), merged))
    c.fail(fmt::format("the output's gradient must have shape {}, got {}", expected.to_string(),
                       c.shape(2).to_string()));
  c.output(DType::Float32, result);
}

void infer_backward_input(InferContext& c) {
  c.require_rank(1, rank_of(c.node()));
  const Shape in = shape_value(c, 0);
  infer_backward(c, in, shape_or_unknown(c.node(), c.shape(1)), in);
}

void infer_backward_filter(InferContext& c) {
  c.require_rank(0, rank_of(c.node()));
  const Shape filter = shape_value(c, 1);
  infer_backward(c, shape_or_unknown(c.node(), c.shape(0)), filter, filter);
}

Fail fail_of(const PrepareContext& c) {
  return [&c](const std::string& message) { c.fail(message); };
}

PreparedKernel prepare_forward(const PrepareContext& c) {
  return prepare_convolution(c, make_convolution(c.node, c.inputs[0].shape, c.inputs[1].shape, fail_of(c)));
}

PreparedKernel prepare_backward_input(const PrepareContext& c) {
  return prepare_convolution_backward_input(
      c, make_convolution(c.node, c.outputs[0].shape, c.inputs[1].shape, fail_of(c)));
}

PreparedKernel prepare_backward_filter(const PrepareContext& c) {
  return prepare_convolution_backward_filter(
      c, make_convolution(c.node, c.inputs[0].shape, c.outputs[0].shape, fail_of(c)));
}

// Gradients. With the family y = F(x, w), dx = I(sizes, w, dy), dw = W(x, sizes, dy), all three are linear in
// each of the two tensors that they take.

struct Family {
  std::string forward, input, filter;
};

Family family_of(const Node& node) {
  if (is_depthwise(node))
    return {"DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput",
            "DepthwiseConv2dNativeBackpropFilter"};
  if (is_volume(node)) return {"Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"};
  return {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"};
}

ValueRef shape_of(GradContext& c, int input) {
  return c.op("Shape", {c.input(input)}, {{"out_type", DType::Int32}});
}

void forward_gradient(GradContext& c) {
  const Family f = family_of(c.node());
  c.set_grad(0, c.op(f.input, {shape_of(c, 0), c.input(1), c.grad()}, c.node().attrs));
  c.set_grad(1, c.op(f.filter, {c.input(0), shape_of(c, 1), c.grad()}, c.node().attrs));
}

void backward_input_gradient(GradContext& c) {
  const Family f = family_of(c.node());
  c.set_grad(1, c.op(f.filter, {c.grad(), shape_of(c, 1), c.input(2)}, c.node().attrs));
  c.set_grad(2, c.op(f.forward, {c.grad(), c.input(1)}, c.node().attrs));
}

void backward_filter_gradient(GradContext& c) {
  const Family f = family_of(c.node());
  c.set_grad(0, c.op(f.input, {shape_of(c, 0), c.grad(), c.input(2)}, c.node().attrs));
  c.set_grad(2, c.op(f.forward, {c.input(0), c.grad()}, c.node().attrs));
}

/// All three passes multiply as often: filter positions times output elements.
Cost conv_cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  const bool forward = c.dtype(0) == DType::Float32 && c.inputs() == 2;
  const Shape& dy = forward ? outputs[0].shape : c.shape(2);
  const bool by_filter = c.inputs() == 3 && c.dtype(0) == DType::Float32;
  const Shape filter = outputs_last(c.node(), by_filter ? outputs[0].shape : c.shape(1));
  double products = known_elements(filter);
  const int last = rank_of(c.node()) - 1;
  if (filter.has_rank() && filter.rank() == last + 1 && filter[last] > 0)
    products /= static_cast<double>(filter[last]);
  if (is_depthwise(c.node()) && filter.has_rank() && filter.rank() == 4 && filter[2] > 0)
    products /= static_cast<double>(filter[2]);
  return {2 * known_elements(dy) * products, traffic_bytes(c, outputs)};
}

void add_family(OpRegistry& registry, const Family& f) {
  registry.add(takes_halves({.name = f.forward,
                             .traits = computes().computes_in(doubles_as_floats),
                             .min_inputs = 2,
                             .max_inputs = 2,
                             .infer = infer_forward,
                             .gradient = forward_gradient,
                             .cost = conv_cost,
                             .cpu = prepare_forward},
                            {.inputs = {0, 1}, .outputs = {0}, .whole = true, .pays = halves_pay}));
  registry.add(takes_halves({.name = f.input,
                             .traits = computes().computes_in(doubles_as_floats),
                             .min_inputs = 3,
                             .max_inputs = 3,
                             .infer = infer_backward_input,
                             .gradient = backward_input_gradient,
                             .cost = conv_cost,
                             .cpu = prepare_backward_input,
                             .shape_values = {0}},
                            {.inputs = {1, 2}, .outputs = {0}, .whole = true, .pays = halves_pay}));
  registry.add(takes_halves({.name = f.filter,
                             .traits = computes().computes_in(doubles_as_floats),
                             .min_inputs = 3,
                             .max_inputs = 3,
                             .infer = infer_backward_filter,
                             .gradient = backward_filter_gradient,
                             .cost = conv_cost,
                             .cpu = prepare_backward_filter,
                             .shape_values = {1}},
                            {.inputs = {0, 2}, .outputs = {0}, .whole = true, .pays = halves_pay}));
}

}  // namespace

void register_conv2d(OpRegistry& registry) {
  add_family(registry, {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"});
  add_family(registry, {"DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput",
                        "DepthwiseConv2dNativeBackpropFilter"});
  add_family(registry, {"Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"});
}

}  // namespace braid
