// ReverseSequence(x, lengths), attributes seq_dim, batch_dim: the first lengths[b] elements along axis
// seq_dim in reverse order for each b of axis batch_dim; those behind stay. It is its own gradient. A length
// that the axis does not have is InvalidArgument.
#include <fmt/format.h>

#include <algorithm>

#include "engine/ops/common/box_copy.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  require_index_dtype(c, 1);
  c.require_rank(1, 1);
  if (c.shape(0).has_rank()) {
    const int rank = c.shape(0).rank();
    const int sequence = normalized_axis(c, c.attr("seq_dim", std::int64_t{0}), rank);
    const int batch = normalized_axis(c, c.attr("batch_dim", std::int64_t{0}), rank);
    if (sequence == batch) c.fail(fmt::format("seq_dim and batch_dim are both {}", batch));
    const std::int64_t rows = c.shape(0)[batch];
    const std::int64_t lengths = c.shape(1).has_rank() ? c.shape(1)[0] : Shape::kUnknown;
    if (rows != Shape::kUnknown && lengths != Shape::kUnknown && rows != lengths)
      c.fail(fmt::format("{} lengths for {} sequences", lengths, rows));
  }
  infer_same_as_first(c);
}

/// How the elements lie: `runs` contiguous ones behind the last of the two axes move together.
struct Layout {
  std::int64_t runs = 1, blocks = 1;             // elements a block, blocks
  std::int64_t steps = 1, rows = 1;              // sizes of the two axes
  std::int64_t step_stride = 1, row_stride = 1;  // in blocks
};

Layout layout_of(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const auto axis = [&](const char* name) {
    const auto at = static_cast<int>(c.attr(name, std::int64_t{0}));
    return at < 0 ? at + shape.rank() : at;
  };
  const int sequence = axis("seq_dim"), batch = axis("batch_dim");
  Layout l;
  for (int i = std::max(sequence, batch) + 1; i < shape.rank(); ++i) l.runs *= shape[i];
  for (int i = 0; i <= std::max(sequence, batch); ++i) l.blocks *= shape[i];
  const std::vector<std::int64_t> strides = row_major_strides(shape);
  l.steps = shape[sequence];
  l.rows = shape[batch];
  const std::int64_t run = std::max<std::int64_t>(l.runs, 1);
  l.step_stride = std::max<std::int64_t>(strides[static_cast<std::size_t>(sequence)] / run, 1);
  l.row_stride = std::max<std::int64_t>(strides[static_cast<std::size_t>(batch)] / run, 1);
  return l;
}

PreparedKernel prepare(const PrepareContext& c) {
  const Layout l = layout_of(c);
  return with_number_or_bool("ReverseSequence", c.inputs[0].dtype, [&]<class T>() {
    return with_index("ReverseSequence", c.inputs[1].dtype, [&]<class I>() {
      return parallel_kernel(
          c, l.blocks, row_grain(l.runs),
          [l, place = place_of(c.node)](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
            for (std::int64_t block = begin; block < end; ++block) {
              const std::int64_t row = block / l.row_stride % l.rows, step = block / l.step_stride % l.steps;
              const auto length = static_cast<std::int64_t>(a.in<I>(1)[row]);
              if (length < 0 || length > l.steps)
                throw InvalidArgument(
                    fmt::format("{}: lengths[{}] = {} is not in [0, {}]", place, row, length, l.steps));
              const std::int64_t from = step < length ? length - 1 - step : step;
              const T* x = a.in<T>(0) + (block + (from - step) * l.step_stride) * l.runs;
              std::copy(x, x + l.runs, a.out<T>(0) + block * l.runs);
            }
          });
    });
  });
}

}  // namespace

void register_reverse_sequence(OpRegistry& registry) {
  registry.add({.name = "ReverseSequence",
                .traits = moves(),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer,
                .gradient =
                    [](GradContext& c) {
                      c.set_grad(0, c.op("ReverseSequence", {c.grad(), c.input(1)}, c.node().attrs));
                    },
                .cpu = prepare});
}

}  // namespace braid
