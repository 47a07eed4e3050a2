// Cumsum, Cumprod(x, axis): y[i] = x[0] op ... op x[i] along one axis, in that order; attribute exclusive
// leaves x[i] itself out, reverse starts at the end. Gradients: of Cumsum the sums of dy from the other end;
// of Cumprod the sums of y dy from the other end, divided by x (0 where x is 0).
#include <fmt/format.h>

#include <algorithm>

#include "engine/fusion/rules.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/grad_util.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

constexpr std::int64_t kTile = 256;  // neighbouring columns that are scanned together

void infer(InferContext& c) {
  require_number(c, 0);
  require_index_dtype(c, 1);
  c.require_rank(1, 0);
  if (c.value(1) && c.shape(0).has_rank())
    normalized_axis(c, tensor_to_int64s(*c.value(1))[0], c.shape(0).rank());
  infer_same_as_first(c);
}

/// Scans `size` rows of n columns; the row after x is x + step.
template <class T, bool kProduct>
BRAID_VECTOR_CLONES void scan(const T* x, T* y, std::int64_t step, std::int64_t size, std::int64_t n,
                              bool exclusive) {
  using W = wrapping_t<T>;
  W sum[kTile];
  std::fill(sum, sum + n, W(kProduct ? 1 : 0));
  for (std::int64_t k = 0; k < size; ++k, x += step, y += step)
    for (std::int64_t j = 0; j < n; ++j) {
      const W before = sum[j], element = static_cast<W>(x[j]);
      sum[j] = static_cast<W>(kProduct ? before * element : before + element);
      y[j] = static_cast<T>(exclusive ? before : sum[j]);
    }
}

template <bool kProduct>
PreparedKernel prepare(const PrepareContext& c) {
  const Shape shape = c.inputs[0].shape;
  const bool exclusive = c.attr("exclusive", false), reverse = c.attr("reverse", false);
  return with_number("Cumsum", c.inputs[0].dtype, [&]<class T>() {
    return with_index("Cumsum", c.inputs[1].dtype, [&]<class I>() {
      return serial_kernel([=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
        const std::int64_t requested = *a.in<I>(1), rank = shape.rank();
        if (requested < -rank || requested >= rank)
          throw InvalidArgument(
              fmt::format("{}: axis {} is out of range for rank {}", place, requested, rank));
        const auto axis = static_cast<int>(requested < 0 ? requested + rank : requested);
        std::int64_t outer = 1, inner = 1;
        for (int d = 0; d < axis; ++d) outer *= shape[d];
        for (int d = axis + 1; d < shape.rank(); ++d) inner *= shape[d];
        const std::int64_t size = shape[axis], tiles = (inner + kTile - 1) / kTile;
        if (size == 0) return;
        const std::int64_t last = reverse ? (size - 1) * inner : 0;
        pool->parallel_range(outer * tiles, row_grain(size * std::min(inner, kTile)),
                             [&](std::int64_t begin, std::int64_t end) {
                               for (std::int64_t task = begin; task < end; ++task) {
                                 const std::int64_t column = task % tiles * kTile;
                                 const std::int64_t at = task / tiles * size * inner + column + last;
                                 scan<T, kProduct>(a.in<T>(0) + at, a.out<T>(0) + at,
                                                   reverse ? -inner : inner, size,
                                                   std::min(inner - column, kTile), exclusive);
                               }
                             });
      });
    });
  });
}

AttrMap from_the_other_end(const Node& node) {
  return {{"exclusive", node.attrs.get("exclusive", false)}, {"reverse", !node.attrs.get("reverse", false)}};
}

void gradient_sum(GradContext& c) {
  c.set_grad(0, c.op("Cumsum", {c.grad(), c.input(1)}, from_the_other_end(c.node())));
}

void gradient_product(GradContext& c) {
  const ValueRef terms = grad::mul(c, c.output(), c.grad());
  const ValueRef sums = c.op("Cumsum", {terms, c.input(1)}, from_the_other_end(c.node()));
  c.set_grad(0, c.op("DivNoNan", {sums, c.input(0)}));
}

/// Lines beside each other, in a region.
template <bool kProduct>
bool fused_scan(fusion::StepWriter& w) {
  const Shape& shape = w.input_info(0).shape;
  const DType dtype = w.input_info(0).dtype;
  if (!w.known(1) || (dtype != DType::Float32 && dtype != DType::Float64)) return false;
  const std::int64_t requested = tensor_to_int64s(*w.known(1))[0], rank = shape.rank();
  if (requested < -rank || requested >= rank) return false;
  const std::int64_t axis = requested < 0 ? requested + rank : requested;
  std::int64_t inner = 1;
  for (std::int64_t d = axis + 1; d < rank; ++d) inner *= shape[static_cast<int>(d)];
  const std::int64_t length = shape[static_cast<int>(axis)];
  if (length < 2) return false;
  w.over(shape, inner);
  w.output(0, w.scan(kProduct ? fusion::RowReduction::Prod : fusion::RowReduction::Sum, w.input(0), length,
                     w.node().attrs.get("reverse", false), w.node().attrs.get("exclusive", false)));
  return true;
}

}  // namespace

void register_cumulative(OpRegistry& registry) {
  for (const bool product : {false, true}) {
    OpDef def;
    def.name = product ? "Cumprod" : "Cumsum";
    def.traits = computes().type_attrs({{"T", 0}, {"Tidx", 1}});
    def.min_inputs = def.max_inputs = 2;
    def.infer = infer;
    def.gradient = product ? gradient_product : gradient_sum;
    def.cost = cost_per_output(1);
    def.cpu = product ? prepare<true> : prepare<false>;
    registry.add(std::move(def));
    fusion::rules().add(product ? "Cumprod" : "Cumsum",
                        {.steps = product ? fused_scan<true> : fused_scan<false>});
  }
}

}  // namespace braid
