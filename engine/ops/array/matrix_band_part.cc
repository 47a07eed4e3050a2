// MatrixBandPart(x [..., m, n], num_lower, num_upper): x where row i and column j are in the band i - j <=
// num_lower and j - i <= num_upper, else 0; a negative number takes all on its side. Gradient: the band of
// dy.
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  require_min_rank(c, 0, 2);
  require_index_dtype(c, 1);
  c.require_same_dtype(1, 2);
  for (const int i : {1, 2}) c.require_rank(i, 0);
  infer_same_as_first(c);
}

PreparedKernel prepare(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const std::int64_t m = shape[shape.rank() - 2], n = shape[shape.rank() - 1];
  const std::int64_t rows = n == 0 ? 0 : shape.elements() / n;
  return with_number_or_bool("MatrixBandPart", c.inputs[0].dtype, [&]<class T>() {
    return with_index("MatrixBandPart", c.inputs[1].dtype, [&]<class I>() {
      return parallel_kernel(
          c, rows, row_grain(n), [m, n](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
            const auto lower = static_cast<std::int64_t>(*a.in<I>(1)),
                       upper = static_cast<std::int64_t>(*a.in<I>(2));
            for (std::int64_t r = begin; r < end; ++r) {
              const std::int64_t i = r % m;
              const std::int64_t first = lower < 0 ? 0 : i - lower, last = upper < 0 ? n - 1 : i + upper;
              for (std::int64_t j = 0; j < n; ++j)
                a.out<T>(0)[r * n + j] = j >= first && j <= last ? a.in<T>(0)[r * n + j] : T{};
            }
          });
    });
  });
}

}  // namespace

void register_matrix_band_part(OpRegistry& registry) {
  registry.add({.name = "MatrixBandPart",
                .traits = moves(),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer,
                .gradient =
                    [](GradContext& c) {
                      c.set_grad(0, c.op("MatrixBandPart", {c.grad(), c.input(1), c.input(2)}));
                    },
                .cost = cost_per_output(1),
                .cpu = prepare,
                .in_place = {{0, 0}}});
}

}  // namespace braid
