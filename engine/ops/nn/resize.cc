// ResizeBilinear(x [n, h, w, c], size [2]) -> float32 and ResizeNearestNeighbor(x, size): images of another
// size, attributes align_corners and half_pixel_centers. Output i of an axis lies at i * scale of the input,
// or at (i + 1/2) * scale (less 1/2 when bilinear) with half_pixel_centers; scale is in / out, or (in - 1) /
// (out - 1) with align_corners, computed in float32 as TensorFlow does. ResizeBilinearGrad(dy, x) and
// ResizeNearestNeighborGrad(dy, size of x) are their gradients.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

/// What an output of an axis is made of: lower + (upper - lower) * share.
struct Tap {
  std::int64_t lower = 0, upper = 0;
  float share = 0;
};

struct Grid {
  std::vector<Tap> rows, columns;
};

float scale_of(std::int64_t in, std::int64_t out, bool align_corners) {
  return align_corners && out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1)
                                  : static_cast<float>(in) / static_cast<float>(out);
}

std::vector<Tap> bilinear_taps(std::int64_t in, std::int64_t out, bool align_corners, bool half_pixel) {
  const float scale = scale_of(in, out, align_corners);
  std::vector<Tap> taps(static_cast<std::size_t>(out));
  for (std::int64_t i = 0; i < out; ++i) {
    const auto at = static_cast<float>(i);
    const float x = half_pixel ? (at + 0.5F) * scale - 0.5F : at * scale;
    const float lower = std::floor(x);
    taps[static_cast<std::size_t>(i)] = {std::max<std::int64_t>(static_cast<std::int64_t>(lower), 0),
                                         std::min(static_cast<std::int64_t>(std::ceil(x)), in - 1),
                                         x - lower};
  }
  return taps;
}

std::vector<Tap> nearest_taps(std::int64_t in, std::int64_t out, bool align_corners, bool half_pixel) {
  const float scale = scale_of(in, out, align_corners);
  std::vector<Tap> taps(static_cast<std::size_t>(out));
  for (std::int64_t i = 0; i < out; ++i) {
    const float x = (static_cast<float>(i) + (half_pixel ? 0.5F : 0.0F)) * scale;
    const auto nearest = static_cast<std::int64_t>(align_corners ? std::round(x) : std::floor(x));
    taps[static_cast<std::size_t>(i)].lower = std::clamp<std::int64_t>(nearest, 0, in - 1);
  }
  return taps;
}

using TapsFn = std::vector<Tap> (*)(std::int64_t in, std::int64_t out, bool align_corners, bool half_pixel);

Grid grid_of(const PrepareContext& c, TapsFn taps, const Shape& in, const Shape& out) {
  const bool corners = c.attr("align_corners", false), half = c.attr("half_pixel_centers", false);
  return {taps(in[1], out[1], corners, half), taps(in[2], out[2], corners, half)};
}

/// The shape of images under a size, input `input`, which may be unknown.
Shape resized(InferContext& c, const Shape& images, int input) {
  require_dtype(c, input, {DType::Int32});
  c.require_rank(input, 1);
  if (c.attr("align_corners", false) && c.attr("half_pixel_centers", false))
    c.fail("align_corners and half_pixel_centers exclude each other");
  Shape out = images.has_rank() ? images : Shape{-1, -1, -1, -1};
  out.set_dim(1, Shape::kUnknown);
  out.set_dim(2, Shape::kUnknown);
  if (const Tensor* value = c.value(input)) {
    const std::vector<std::int64_t> size = tensor_to_int64s(*value);
    if (size.size() != 2) c.fail(fmt::format("size must be two numbers, got {}", size.size()));
    if (size[0] <= 0 || size[1] <= 0)
      c.fail(fmt::format("the size must be positive, got {} by {}", size[0], size[1]));
    out.set_dim(1, size[0]);
    out.set_dim(2, size[1]);
  }
  return out;
}

void require_images(const InferContext& c, int input) {
  c.require_rank(input, 4);
  const Shape& shape = c.shape(input);
  if (shape.has_rank() && (shape[1] == 0 || shape[2] == 0))
    c.fail("images have no elements: " + shape.to_string());
}

void infer_bilinear(InferContext& c) {
  require_number(c, 0);
  require_images(c, 0);
  c.output(DType::Float32, resized(c, c.shape(0), 1));
}

void infer_nearest(InferContext& c) {
  require_images(c, 0);
  c.output(c.dtype(0), resized(c, c.shape(0), 1));
}

void infer_bilinear_grad(InferContext& c) {
  require_dtype(c, 0, {DType::Float32});
  require_floating(c, 1);
  for (const int i : {0, 1}) require_images(c, i);
  c.output(c.dtype(1), c.shape(1));
}

PreparedKernel prepare_bilinear(const PrepareContext& c) {
  const Shape &in = c.inputs[0].shape, &out = c.outputs[0].shape;
  const std::int64_t width = out[2] * out[3];
  return with_number("ResizeBilinear", c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(
        c, out[0] * out[1], row_grain(4 * width),
        [grid = grid_of(c, bilinear_taps, in, out), in, rows = out[1], width](
            const KernelArgs& a, std::int64_t begin, std::int64_t end) {
          const std::int64_t n = in[3];
          for (std::int64_t r = begin; r < end; ++r) {
            const Tap row = grid.rows[static_cast<std::size_t>(r % rows)];
            const T* image = a.in<T>(0) + r / rows * in[1] * in[2] * n;
            const T *top = image + row.lower * in[2] * n, *bottom = image + row.upper * in[2] * n;
            float* y = a.out<float>(0) + r * width;
            for (const Tap& column : grid.columns)
              for (std::int64_t i = 0; i < n; ++i) {
                const std::int64_t left = column.lower * n + i, right = column.upper * n + i;
                const auto mix = [&](const T* x) {
                  const auto l = static_cast<float>(x[left]);
                  return l + (static_cast<float>(x[right]) - l) * column.share;
                };
                const float above = mix(top);
                *y++ = above + (mix(bottom) - above) * row.share;
              }
          }
        });
  });
}

PreparedKernel prepare_bilinear_grad(const PrepareContext& c) {
  const Shape &dy = c.inputs[0].shape, &dx = c.outputs[0].shape;
  const std::int64_t image = dx[1] * dx[2] * dx[3];
  return with_float("ResizeBilinearGrad", c.inputs[1].dtype, [&]<class T>() {
    return parallel_kernel(
        c, dx[0], row_grain(image),
        [grid = grid_of(c, bilinear_taps, dx, dy), dx, image, n = dy[3]](
            const KernelArgs& a, std::int64_t begin, std::int64_t end) {
          std::fill(a.out<T>(0) + begin * image, a.out<T>(0) + end * image, T{});
          const float* from = a.in<float>(0) + begin * static_cast<std::int64_t>(grid.rows.size()) *
                                                   static_cast<std::int64_t>(grid.columns.size()) * n;
          for (std::int64_t b = begin; b < end; ++b)
            for (const Tap& row : grid.rows) {
              T* top = a.out<T>(0) + b * image + row.lower * dx[2] * n;
              T* bottom = a.out<T>(0) + b * image + row.upper * dx[2] * n;
              for (const Tap& column : grid.columns)
                for (std::int64_t i = 0; i < n; ++i) {
                  const float g = *from++;
                  const std::int64_t left = column.lower * n + i, right = column.upper * n + i;
                  top[left] += static_cast<T>(g * (1 - row.share) * (1 - column.share));
                  top[right] += static_cast<T>(g * (1 - row.share) * column.share);
                  bottom[left] += static_cast<T>(g * row.share * (1 - column.share));
                  bottom[right] += static_cast<T>(g * row.share * column.share);
                }
            }
        });
  });
}

PreparedKernel prepare_nearest(const PrepareContext& c) {
  const Shape &in = c.inputs[0].shape, &out = c.outputs[0].shape;
  return with_number_or_bool("ResizeNearestNeighbor", c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(c, out[0] * out[1], row_grain(out[2] * out[3]),
                           [grid = grid_of(c, nearest_taps, in, out), in, rows = out[1]](
                               const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                             const std::int64_t n = in[3];
                             T* y = a.out<T>(0) + begin * static_cast<std::int64_t>(grid.columns.size()) * n;
                             for (std::int64_t r = begin; r < end; ++r) {
                               const std::int64_t row = grid.rows[static_cast<std::size_t>(r % rows)].lower;
                               const T* x = a.in<T>(0) + (r / rows * in[1] + row) * in[2] * n;
                               for (const Tap& column : grid.columns)
                                 y = std::copy(x + column.lower * n, x + (column.lower + 1) * n, y);
                             }
                           });
  });
}

PreparedKernel prepare_nearest_grad(const PrepareContext& c) {
  const Shape &dy = c.inputs[0].shape, &dx = c.outputs[0].shape;
  const std::int64_t image = dx[1] * dx[2] * dx[3];
  return with_float("ResizeNearestNeighborGrad", c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(c, dx[0], row_grain(image),
                           [grid = grid_of(c, nearest_taps, dx, dy), dx, image, n = dy[3]](
                               const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                             std::fill(a.out<T>(0) + begin * image, a.out<T>(0) + end * image, T{});
                             const T* from =
                                 a.in<T>(0) + begin * static_cast<std::int64_t>(grid.rows.size()) *
                                                  static_cast<std::int64_t>(grid.columns.size()) * n;
                             for (std::int64_t b = begin; b < end; ++b)
                               for (const Tap& row : grid.rows)
                                 for (const Tap& column : grid.columns) {
                                   T* to = a.out<T>(0) + b * image + (row.lower * dx[2] + column.lower) * n;
                                   for (std::int64_t i = 0; i < n; ++i) to[i] += *from++;
                                 }
                           });
  });
}

void bilinear_gradient(GradContext& c) {
  if (!is_floating(c.input_info(0).dtype)) return;
  c.set_grad(0, c.op("ResizeBilinearGrad", {c.grad(), c.input(0)}, c.node().attrs));
}

void nearest_gradient(GradContext& c) {
  const ValueRef shape = c.op("Shape", {c.input(0)}, {{"out_type", DType::Int32}});
  const ValueRef axes = c.constant(Tensor::from<std::int32_t>({2}, std::vector<std::int32_t>{1, 2}));
  c.set_grad(0, c.op("ResizeNearestNeighborGrad", {c.grad(), c.op("Gather", {shape, axes})}, c.node().attrs));
}

constexpr const char* kGradReason = "it is part of a gradient; second derivatives are not made";

}  // namespace

void register_resize(OpRegistry& registry) {
  registry.add({.name = "ResizeBilinear",
                .traits = computes().data_outputs(0),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_bilinear,
                .gradient = bilinear_gradient,
                .cost = cost_per_output(8),
                .cpu = prepare_bilinear,
                .shape_values = {1}});
  registry.add({.name = "ResizeNearestNeighbor",
                .traits = moves(),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_nearest,
                .gradient = nearest_gradient,
                .cpu = prepare_nearest,
                .shape_values = {1}});
  registry.add({.name = "ResizeBilinearGrad",
                .traits = computes(),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_bilinear_grad,
                .no_gradient_reason = kGradReason,
                .cost = cost_per_input(8),
                .cpu = prepare_bilinear_grad,
                .shape_only = {1}});
  registry.add({.name = "ResizeNearestNeighborGrad",
                .traits = computes(),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_nearest,
                .no_gradient_reason = kGradReason,
                .cost = cost_per_input(1),
                .cpu = prepare_nearest_grad,
                .shape_values = {1}});
}

}  // namespace braid
