// braid.FusedConv2D(images, filter, bias(, residual)): y = act(Conv2D(images, filter) + bias + residual), a
// bias for each channel, a residual like y; what the pass makes of a convolution's layer
// (engine/rewrite/fuse.cc). Attributes are Conv2D's and `relu` bool. It is made after differentiation.
#include <fmt/format.h>

#include "engine/ops/common/halves.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/nn/convolution.h"

namespace braid {
namespace {

Shape image_or_unknown(const Shape& shape) {
  constexpr std::int64_t u = Shape::kUnknown;
  return shape.has_rank() ? shape : Shape{u, u, u, u};
}

void infer(InferContext& c) {
  for (int i = 0; i < c.inputs(); ++i) {
    require_dtype(c, i, {DType::Float32});
    c.require_rank(i, i == 2 ? 1 : 4);
  }
  const Convolution conv =
      make_convolution(c.node(), image_or_unknown(c.shape(0)), image_or_unknown(c.shape(1)),
                       [&c](const std::string& message) { c.fail(message); });
  Shape out = image_shape(conv.window.axes, conv.batch, conv.out_h, conv.out_w, conv.out_c);
  Shape merged;
  if (!merge_shapes(Shape{conv.out_c}, c.shape(2), merged))
    c.fail(fmt::format("the bias {} does not fit {} channels", c.shape(2).to_string(), conv.out_c));
  if (c.inputs() == 4 && !merge_shapes(out, c.shape(3), out))
    c.fail(fmt::format("the residual {} does not fit {}", c.shape(3).to_string(), out.to_string()));
  c.output(DType::Float32, out);
}

/// y[i] = act(y[i] + bias[i] + residual[i]); without biases all have `one`.
BRAID_VECTOR_CLONES void finish_row(float* y, const float* bias, float one, const float* residual, bool relu,
                                    std::int64_t n) {
  if (bias)
    for (std::int64_t i = 0; i < n; ++i) y[i] += bias[i];
  else
    for (std::int64_t i = 0; i < n; ++i) y[i] += one;
  if (residual)
    for (std::int64_t i = 0; i < n; ++i) y[i] += residual[i];
  if (relu)
    for (std::int64_t i = 0; i < n; ++i) y[i] = y[i] < 0 ? 0 : y[i];
}

PreparedKernel prepare(const PrepareContext& c) {
  const Convolution conv = make_convolution(c.node, c.inputs[0].shape, c.inputs[1].shape,
                                            [&c](const std::string& message) { c.fail(message); });
  PreparedKernel product = prepare_convolution(c, conv);
  if (c.outputs[0].shape.elements() == 0) return product;
  // Rows of the output: a pixel's channels, or the pixels of one channel.
  const bool nchw = conv.window.axes.nchw();
  const std::int64_t width = nchw ? conv.out_h * conv.out_w : conv.out_c;
  const std::int64_t rows = c.outputs[0].shape.elements() / width, channels = conv.out_c;
  PreparedKernel kernel;
  kernel.scratch_bytes = product.scratch_bytes;
  kernel.run = [product = std::move(product.run), pool = &c.pool, nchw, width, rows, channels,
                relu = c.attr<bool>("relu", false),
                has_residual = c.inputs.size() == 4](const KernelArgs& a) {
    product(a);
    pool->parallel_range(rows, row_grain(width), [&](std::int64_t begin, std::int64_t end) {
      const float* bias = a.in<float>(2);
      for (std::int64_t row = begin; row < end; ++row)
        finish_row(a.out<float>(0) + row * width, nchw ? nullptr : bias, nchw ? bias[row % channels] : 0,
                   has_residual ? a.in<float>(3) + row * width : nullptr, relu, width);
    });
  };
  return kernel;
}

Cost cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  const Shape filter = outputs_last(c.node(), c.shape(1));
  double products = known_elements(filter);
  if (filter.has_rank() && filter[3] > 0) products /= static_cast<double>(filter[3]);
  return {(2 * products + 2) * known_elements(outputs[0].shape), traffic_bytes(c, outputs)};
}

/// Images, filter and residual; biases are few.
std::vector<int> half_inputs_of(const Node& node) {
  return node.inputs.size() == 4 ? std::vector<int>{0, 1, 3} : std::vector<int>{0, 1};
}

}  // namespace

void register_fused_conv2d(OpRegistry& registry) {
  OpDef def;
  def.name = "braid.FusedConv2D";
  def.traits = computes();
  def.min_inputs = 3;
  def.max_inputs = 4;
  def.infer = infer;
  def.no_gradient_reason = "fusion makes it after differentiation";
  def.cost = cost;
  def.cpu = prepare;
  registry.add(takes_halves(
      std::move(def), {.outputs = {0}, .inputs_of = half_inputs_of, .whole = true, .pays = halves_pay}));
}

}  // namespace braid
