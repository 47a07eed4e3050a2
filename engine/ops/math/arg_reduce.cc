// ArgMax, ArgMin: the index of the largest or smallest element along one axis (input 1, a scalar); of equal
// ones the first; a NaN only where there is nothing else. Attribute output_type: int64 (default) or int32.
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/reduce_loops.h"
#include "engine/ops/common/scalar_formulas.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

constexpr std::int64_t kLongRun = 64;  // from here on a vector reduction and a search beat one scan
constexpr std::int64_t kTile = 256;    // neighbouring columns that are searched together

/// The index of the extreme of n contiguous elements.
template <bool kMax, class T>
std::int64_t extreme_of_run(const T* x, std::int64_t n) {
  if (n >= kLongRun) {
    using Op = std::conditional_t<kMax, reduce::Max, reduce::Min>;
    T best;
    reduce::rows<Op, T>(x, 0, 1, n, &best);
    if (best == best) {
      std::int64_t i = 0;
      while (x[i] != best) ++i;
      return i;
    }
  }
  std::int64_t at = 0;
  T best = x[0];
  for (std::int64_t i = 1; i < n; ++i) {  // selections, not branches: nobody can predict these
    const bool better = formula::beats<kMax>(x[i], best);
    best = better ? x[i] : best;
    at = better ? i : at;
  }
  return at;
}

/// y[j] = the index of the extreme of x[k * stride + j] over k; n <= kTile columns.
template <bool kMax, class T, class I>
BRAID_VECTOR_CLONES void extreme_of_columns(const T* x, std::int64_t stride, std::int64_t size,
                                            std::int64_t n, I* y) {
  T best[kTile];
  for (std::int64_t j = 0; j < n; ++j) best[j] = x[j], y[j] = 0;
  for (std::int64_t k = 1; k < size; ++k) {
    const T* row = x + k * stride;
    for (std::int64_t j = 0; j < n; ++j) {
      const bool better = formula::beats<kMax>(row[j], best[j]);
      best[j] = better ? row[j] : best[j];
      y[j] = better ? static_cast<I>(k) : y[j];
    }
  }
}

template <bool kMax, class T, class I>
PreparedKernel arg_kernel(const PrepareContext& c, int axis) {
  const Shape& shape = c.inputs[0].shape;
  std::int64_t outer = 1, inner = 1;
  for (int d = 0; d < axis; ++d) outer *= shape[d];
  for (int d = axis + 1; d < shape.rank(); ++d) inner *= shape[d];
  const std::int64_t size = shape[axis];
  if (size == 0 && outer * inner > 0) c.fail("the reduced axis has no elements");
  const std::int64_t tiles = (inner + kTile - 1) / kTile;
  return parallel_kernel(c, outer * tiles, row_grain(size * std::min(inner, kTile)),
                         [=](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
                           for (std::int64_t task = begin; task < end; ++task) {
                             const std::int64_t o = task / tiles, column = task % tiles * kTile;
                             const T* x = args.in<T>(0) + o * size * inner + column;
                             I* y = args.out<I>(0) + o * inner + column;
                             if (inner == 1)
                               *y = static_cast<I>(extreme_of_run<kMax>(x, size));
                             else
                               extreme_of_columns<kMax>(x, inner, size, std::min(inner - column, kTile), y);
                           }
                         });
}

template <bool kMax>
PreparedKernel prepare(const PrepareContext& c) {
  const std::vector<int> axes = known_axes(c, 1, c.inputs[0].shape.rank());
  return with_number(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    return with_index(c.node.op->name, c.outputs[0].dtype,
                      [&]<class I>() { return arg_kernel<kMax, T, I>(c, axes[0]); });
  });
}

void infer(InferContext& c) {
  require_number(c, 0);
  require_index_dtype(c, 1);
  require_min_rank(c, 0, 1);
  const auto out = c.attr<DType>("output_type", DType::Int64);
  if (out != DType::Int64 && out != DType::Int32) c.fail("output_type must be int32 or int64");
  const Shape& shape = c.shape(0);
  if (!shape.has_rank()) return c.output(out, Shape::unknown_rank());
  if (const auto axes = reduction_axes(c, 1, shape.rank())) {
    if (axes->size() != 1) c.fail("input 1 must hold one axis");
    return c.output(out, reduced_shape(shape, *axes, false));
  }
  c.output(out,
           Shape(std::vector<std::int64_t>(static_cast<std::size_t>(shape.rank() - 1), Shape::kUnknown)));
}

}  // namespace

void register_arg_reduce(OpRegistry& registry) {
  for (bool max : {true, false}) {
    OpDef def;
    def.name = max ? "ArgMax" : "ArgMin";
    def.traits =
        computes().computes_in(bools_as_integers).data_outputs(0).type_attrs({{"T", 0}, {"Tidx", 1}});
    def.min_inputs = def.max_inputs = 2;
    def.infer = infer;
    def.no_gradient_reason = "the output is an index";
    def.cost = cost_per_input(1);
    def.cpu = max ? prepare<true> : prepare<false>;
    def.shape_values = {1};
    registry.add(std::move(def));
  }
}

}  // namespace braid
