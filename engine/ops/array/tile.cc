// Tile(x, multiples): x repeated multiples[i] times along axis i. braid.TileGrad(dy, multiples, like): the
// sum of the repetitions, in the shape of `like`, added in row-major order of the repetitions.
#include <fmt/format.h>

#include "engine/ops/common/box_plan.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/row_sums.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer_tile(InferContext& c) {
  c.require_rank(1, 1);
  require_index_dtype(c, 1);
  const Shape& in = c.shape(0);
  const Tensor* value = c.value(1);
  const std::int64_t count = value                   ? value->elements()
                             : c.shape(1).has_rank() ? c.shape(1)[0]
                                                     : Shape::kUnknown;
  const std::int64_t rank = in.has_rank() ? in.rank() : count;
  if (rank == Shape::kUnknown) return c.output(c.dtype(0), Shape::unknown_rank());
  if (count != Shape::kUnknown && count != rank)
    c.fail(fmt::format("{} multiples for shape {}", count, in.to_string()));
  std::vector<std::int64_t> dims(static_cast<std::size_t>(rank), Shape::kUnknown);
  if (value) {
    const std::vector<std::int64_t> multiples = tensor_to_int64s(*value);
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (multiples[i] < 0) c.fail(fmt::format("multiple {} is {}", i, multiples[i]));
      const std::int64_t dim = in.has_rank() ? in[static_cast<int>(i)] : Shape::kUnknown;
      if (dim != Shape::kUnknown) dims[i] = dim * multiples[i];
    }
  }
  c.output(c.dtype(0), Shape(std::move(dims)));
}

void tile_gradient(GradContext& c) {
  c.set_grad(0, c.op("braid.TileGrad", {c.grad(), c.input(1), c.input(0)}));
}

void infer_tile_grad(InferContext& c) { c.output(c.dtype(0), c.shape(2)); }

/// Where the rows (last axis) of the repetitions of one output row start in dy.
struct Repetitions {
  std::vector<std::int64_t> dims;     // of the output
  std::vector<std::int64_t> strides;  // of dy
  std::vector<std::int64_t> offsets;  // of the repetitions, row-major

  Repetitions(const Shape& out, const Shape& dy, const std::vector<std::int64_t>& multiples)
      : dims(out.dims().begin(), out.dims().end()), strides(row_major_strides(dy)), offsets{0} {
    for (std::size_t i = 0; i < multiples.size(); ++i) {
      std::vector<std::int64_t> next;
      for (std::int64_t offset : offsets)
        for (std::int64_t m = 0; m < multiples[i]; ++m) next.push_back(offset + m * dims[i] * strides[i]);
      offsets = std::move(next);
    }
  }

  std::int64_t width() const { return dims.empty() ? 1 : dims.back(); }
  std::int64_t row_start(std::int64_t row) const {
    std::int64_t start = 0;
    for (std::size_t i = dims.size(); i-- > 1;) {
      start += row % dims[i - 1] * strides[i - 1];
      row /= dims[i - 1];
    }
    return start;
  }
};

PreparedKernel prepare_tile_grad(const PrepareContext& c) {
  const Repetitions from(c.outputs[0].shape, c.inputs[0].shape, tensor_to_int64s(*c.values[1]));
  const std::int64_t width = from.width();
  const std::int64_t rows = width == 0 ? 0 : c.outputs[0].shape.elements() / width;
  const std::int64_t row_cost = width * static_cast<std::int64_t>(from.offsets.size());
  return with_number("braid.TileGrad", c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(c, rows, row_grain(row_cost),
                           [from, width](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                             for (std::int64_t r = begin; r < end; ++r) {
                               T* sum = a.out<T>(0) + r * width;
                               const T* dy = a.in<T>(0) + from.row_start(r);
                               std::fill(sum, sum + width, T{});
                               for (std::int64_t offset : from.offsets) add_row(sum, dy + offset, width);
                             }
                           });
  });
}

}  // namespace

BoxPlan plans::tile(const PrepareContext& c) {
  const Shape& in = c.inputs[0].shape;
  const std::vector<std::int64_t> multiples = tensor_to_int64s(*c.values[1]);
  const std::vector<std::int64_t> src = row_major_strides(in);
  const std::vector<std::int64_t> dst = row_major_strides(c.outputs[0].shape);
  std::vector<BoxAxis> axes;
  for (std::size_t i = 0; i < multiples.size(); ++i) {
    const std::int64_t dim = in[static_cast<int>(i)];
    axes.push_back({multiples[i], 0, dim * dst[i]});
    axes.push_back({dim, src[i], dst[i]});
  }
  return {{{BoxCopy(axes, 0, 0, dtype_size(c.inputs[0].dtype)), 0, 0}}};
}

void register_tile(OpRegistry& registry) {
  registry.add({.name = "Tile",
                .traits = moves().any_type().on_string_ids().type_attrs({{"T", 0}, {"Tmultiples", 1}}),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_tile,
                .gradient = tile_gradient,
                .cpu = prepare_boxes<plans::tile>,
                .shape_values = {1}});
  registry.add({.name = "braid.TileGrad",
                .traits = computes(),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer_tile_grad,
                .gradient =
                    [](GradContext& c) {
                      c.set_grad(0, c.op("Tile", {c.grad(), c.input(1)}));
                    },
                .cpu = prepare_tile_grad,
                .shape_values = {1},
                .shape_only = {2}});
}

}  // namespace braid
