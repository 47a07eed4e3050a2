// SparseFillEmptyRowsGrad(gone_to [n], dy [m]): the gradient of the values that SparseFillEmptyRows got,
// dy[gone_to[i]], and of the default, the sum of all others.
#include <fmt/format.h>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  require_dtype(c, 0, {DType::Int64});
  require_number(c, 1);
  for (const int i : {0, 1}) c.require_rank(i, 1);
  c.output(c.dtype(1), c.shape(0).has_rank() ? c.shape(0) : Shape{Shape::kUnknown});
  c.output(c.dtype(1), Shape{});
}

PreparedKernel prepare(const PrepareContext& c) {
  const std::int64_t n = c.inputs[0].shape[0], m = c.inputs[1].shape[0];
  return with_number("SparseFillEmptyRowsGrad", c.inputs[1].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.scratch_bytes = static_cast<std::size_t>(m) * sizeof(bool);
    kernel.run = [n, m, place = place_of(c.node)](const KernelArgs& a) {
      const std::int64_t* gone_to = a.in<std::int64_t>(0);
      check_indices(place, gone_to, n, m);
      bool* taken = static_cast<bool*>(a.scratch);
      std::fill(taken, taken + m, false);
      for (std::int64_t i = 0; i < n; ++i) {
        a.out<T>(0)[i] = a.in<T>(1)[gone_to[i]];
        taken[gone_to[i]] = true;
      }
      T rest{};
      for (std::int64_t k = 0; k < m; ++k)
        if (!taken[k]) rest += a.in<T>(1)[k];
      *a.out<T>(1) = rest;
    };
    return kernel;
  });
}

}  // namespace

void register_fill_empty_rows_grad(OpRegistry& registry) {
  registry.add({.name = "SparseFillEmptyRowsGrad",
                .traits = computes().names({"d_values", "d_default_value"}),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer,
                .no_gradient_reason = "it is part of a gradient; second derivatives are not made",
                .cpu = prepare});
}

}  // namespace braid
