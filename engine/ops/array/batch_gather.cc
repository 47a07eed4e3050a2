// braid.BatchGather(params, indices, axis): GatherV2 with attribute batch_dims b > 0, which the importer
// names so. The leading b axes are shared: y[B, outer, indices..., inner] = params[B, outer, indices[B, ...],
// inner], with `outer` the axes between the batch and `axis`. braid.BatchGatherGrad(dy, indices, axis, like):
// the slices added up in the shape of `like`, in the order of the indices; ONNX's sums by index are this,
// too.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/ops/array/batch_gather_sizes.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/row_sums.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

/// batch_dims may count from the end of indices.
template <class Context>
int batch_axes(const Context& c, const Shape& params, const Shape& indices) {
  auto b = c.attr("batch_dims", std::int64_t{0});
  if (b < 0) b += indices.rank();
  if (b < 0 || b > std::min(params.rank() - 1, indices.rank()))
    c.fail(fmt::format("batch_dims {} does not fit shapes {} and {}", b, params.to_string(),
                       indices.to_string()));
  return static_cast<int>(b);
}

void infer(InferContext& c) {
  require_min_rank(c, 0, 1);
  require_index_dtype(c, 1);
  require_index_dtype(c, 2);
  const Shape &params = c.shape(0), &indices = c.shape(1);
  if (!params.has_rank() || !indices.has_rank() || !c.value(2))
    return c.output(c.dtype(0), Shape::unknown_rank());
  const int b = batch_axes(c, params, indices);
  const int axis = normalized_axis(c, tensor_to_int64s(*c.value(2))[0], params.rank());
  if (axis < b) c.fail(fmt::format("axis {} is one of the {} batch axes", axis, b));
  std::vector<std::int64_t> dims(params.dims().begin(), params.dims().begin() + axis);
  for (int i = 0; i < b; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (dims[at] == Shape::kUnknown) dims[at] = indices[i];
    if (indices[i] != Shape::kUnknown && indices[i] != dims[at])
      c.fail(fmt::format("batch axis {} has {} and {} elements", i, dims[at], indices[i]));
  }
  dims.insert(dims.end(), indices.dims().begin() + b, indices.dims().end());
  dims.insert(dims.end(), params.dims().begin() + axis + 1, params.dims().end());
  c.output(c.dtype(0), Shape(std::move(dims)));
}

PreparedKernel prepare(const PrepareContext& c) {
  const BatchGatherSizes s(c, c.inputs[0].shape, c.inputs[1].shape);
  const std::size_t row_bytes = static_cast<std::size_t>(s.width) * dtype_size(c.inputs[0].dtype);
  return with_index("GatherV2", c.inputs[1].dtype, [&]<class I>() {
    return serial_kernel([=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
      const I* indices = a.in<I>(1);
      check_indices(place, indices, s.batch * s.n, s.rows);
      pool->parallel_range(
          s.batch * s.outer * s.n, row_grain(s.width), [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t r = begin; r < end; ++r) {
              const std::int64_t block = r / s.n;  // of params' rows
              const std::int64_t index = indices[block / s.outer * s.n + r % s.n];
              std::memcpy(a.out<char>(0) + static_cast<std::size_t>(r) * row_bytes,
                          a.in<char>(0) + static_cast<std::size_t>(block * s.rows + index) * row_bytes,
                          row_bytes);
            }
          });
    });
  });
}

void gradient(GradContext& c) {
  const auto batch_dims = c.node().attrs.get("batch_dims", std::int64_t{0});
  c.set_grad(0, c.op("braid.BatchGatherGrad", {c.grad(), c.input(1), c.input(2), c.input(0)},
                     {{"batch_dims", batch_dims}}));
}

void grad_gradient(GradContext& c) {
  const auto batch_dims = c.node().attrs.get("batch_dims", std::int64_t{0});
  c.set_grad(0, c.op("braid.BatchGather", {c.grad(), c.input(1), c.input(2)}, {{"batch_dims", batch_dims}}));
}

PreparedKernel prepare_grad(const PrepareContext& c) {
  const BatchGatherSizes s(c, c.outputs[0].shape, c.inputs[1].shape);
  return with_number("braid.BatchGatherGrad", c.inputs[0].dtype, [&]<class T>() {
    return with_index("braid.BatchGatherGrad", c.inputs[1].dtype, [&]<class I>() {
      return parallel_kernel(c, s.batch * s.outer, row_grain(std::max(s.rows, s.n) * s.width),
                             [=](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                               std::fill(a.out<T>(0) + begin * s.rows * s.width,
                                         a.out<T>(0) + end * s.rows * s.width, T{});
                               for (std::int64_t block = begin; block < end; ++block)
                                 for (std::int64_t k = 0; k < s.n; ++k) {
                                   const std::int64_t index = a.in<I>(1)[block / s.outer * s.n + k];
                                   add_row(a.out<T>(0) + (block * s.rows + index) * s.width,
                                           a.in<T>(0) + (block * s.n + k) * s.width, s.width);
                                 }
                             });
    });
  });
}

}  // namespace

BatchGatherSizes::BatchGatherSizes(const PrepareContext& c, const Shape& params, const Shape& indices) {
  const int b = batch_axes(c, params, indices);
  const std::int64_t requested = tensor_to_int64s(*c.values[2])[0];
  const auto axis = static_cast<int>(requested < 0 ? requested + params.rank() : requested);
  for (int i = 0; i < b; ++i) batch *= params[i];
  for (int i = b; i < axis; ++i) outer *= params[i];
  rows = params[axis];
  for (int i = axis + 1; i < params.rank(); ++i) width *= params[i];
  for (int i = b; i < indices.rank(); ++i) n *= indices[i];
}

void register_batch_gather(OpRegistry& registry) {
  registry.add({.name = "braid.BatchGather",
                .traits = moves().any_type().on_string_ids(),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer,
                .gradient = gradient,
                .cpu = prepare,
                .shape_values = {2},
                .in_files = true});
  registry.add({.name = "braid.BatchGatherGrad",
                .traits = computes(),
                .min_inputs = 4,
                .max_inputs = 4,
                .infer = [](InferContext& c) { c.output(c.dtype(0), c.shape(3)); },
                .gradient = grad_gradient,
                .cpu = prepare_grad,
                .shape_values = {2},
                .shape_only = {3},
                .in_files = true});
}

}  // namespace braid
