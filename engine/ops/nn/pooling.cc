#include "engine/ops/nn/pooling.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/ops/common/shape_rules.h"

namespace braid {

Pooling make_pooling(const Node& node, const Shape& in, const Fail& fail) {
  Pooling p;
  const bool volumes = node.op->name.find("3D") != std::string::npos;
  p.window = read_window(node.attrs, fail, volumes);
  const ImageAxes& axes = p.window.axes;
  const auto ksize = node.attrs.require<std::vector<std::int64_t>>("ksize");
  const auto at = [&ksize](int axis) { return ksize[static_cast<std::size_t>(axis)]; };
  if (ksize.size() != static_cast<std::size_t>(axes.rank()) || at(axes.n) != 1 || at(axes.c) != 1)
    fail(fmt::format("attribute ksize must have {} numbers, 1 for batch and channels", axes.rank()));
  p.window.h.kernel = at(axes.h);
  p.window.w.kernel = at(axes.w);
  if (volumes) p.window.d.kernel = at(axes.d);
  constexpr std::int64_t kMost = 1 << 30;
  for (const WindowAxis* axis : {&p.window.d, &p.window.h, &p.window.w}) {
    if (axis->kernel < 1) fail("attribute ksize must be at least 1");
    if (axis->kernel > kMost) fail(fmt::format("attribute ksize must be at most {}", kMost));
    if (axis->pad_before >= axis->kernel || axis->pad_after >= axis->kernel)
      fail(fmt::format("a padding of {} hides a whole window of {}",
                       std::max(axis->pad_before, axis->pad_after), axis->kernel));
  }
  p.images = in[axes.n];
  p.channels = in[axes.c];
  p.in_h = in[axes.h];
  p.in_w = in[axes.w];
  p.out_h = resolve_axis(p.window.h, p.window.padding, p.in_h, fail);
  p.out_w = resolve_axis(p.window.w, p.window.padding, p.in_w, fail);
  if (volumes) {
    p.in_d = in[axes.d];
    p.out_d = resolve_axis(p.window.d, p.window.padding, p.in_d, fail);
  }
  return p;
}

Shape pooled_shape(const Pooling& p) {
  return image_shape(p.window.axes, p.images, p.out_h, p.out_w, p.channels, p.out_d);
}

Pooling prepared_pooling(const PrepareContext& c, const Shape& in) {
  Pooling p = make_pooling(c.node, in, [&c](const std::string& message) { c.fail(message); });
  if (p.window.axes.nchw()) {
    p.images *= p.channels;
    p.channels = 1;
  }
  return p;
}

void infer_max_pool_grad(InferContext& c, int rank) {
  require_floating(c, 0);
  c.require_rank(0, rank);
  c.require_same_dtype(0, 1);
  c.require_same_dtype(0, 2);
  merged_shape(c, 1, 2);
  infer_same_as_first(c);
}

void infer_average_pool_grad(InferContext& c, int rank) {
  c.require_rank(0, 1);
  require_dtype(c, 0, {DType::Int32, DType::Int64});
  require_floating(c, 1);
  c.output(c.dtype(1), c.value(0) ? Shape(tensor_to_int64s(*c.value(0)))
                                  : Shape(std::vector<std::int64_t>(static_cast<std::size_t>(rank), -1)));
}

Cost pool_cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  double taps = 1;
  for (std::int64_t k : c.attr("ksize", std::vector<std::int64_t>{})) taps *= static_cast<double>(k);
  const bool forward = c.inputs() == 1;
  return {taps * known_elements(forward ? outputs[0].shape : c.shape(c.inputs() - 1)),
          traffic_bytes(c, outputs)};
}

}  // namespace braid
