// braid.AddRows(x [n, row...], indices [k], rows [k, row...]): x, to whose rows indices[k] rows[k] are added,
// in x's memory where nobody reads x later. Rows of one index are added up in their order first. The compiler
// makes it of a sum with the gradient of a gather of few rows, which would be zeros almost everywhere
// (engine/rewrite/few_rows.cc). x may hold halves where rows are float32; an index out of range is
// InvalidArgument.
#include <fmt/format.h>

#include <cstring>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  require_min_rank(c, 0, 1);
  c.require_rank(1, 1);
  require_index_dtype(c, 1);
  if (c.dtype(0) != c.dtype(2))
    c.fail(fmt::format("x holds {}, its rows {}", dtype_name(c.dtype(0)), dtype_name(c.dtype(2))));
  const Shape &x = c.shape(0), &indices = c.shape(1), &rows = c.shape(2);
  if (x.has_rank() && rows.has_rank()) {
    Shape expected = x, merged;
    expected.set_dim(0, indices.has_rank() ? indices[0] : Shape::kUnknown);
    if (!merge_shapes(expected, rows, merged))
      c.fail(fmt::format("rows of shape {} are no rows of shape {} for indices of shape {}", rows.to_string(),
                         x.to_string(), indices.to_string()));
  }
  c.output(c.dtype(0), x);
}

template <class T>
void add_groups(const IndexGroups& groups, const T* rows, std::int64_t width, T* x) {
  for (std::int64_t g = 0; g < groups.size(); ++g)
    for (std::int64_t i = 0; i < width; ++i) {
      T sum = rows[groups.position(groups.begin(g)) * width + i];
      for (std::int64_t e = groups.begin(g) + 1; e < groups.end(g); ++e)
        sum += rows[groups.position(e) * width + i];
      x[groups.index(g) * width + i] += sum;
    }
}

PreparedKernel prepare(const PrepareContext& c) {
  const std::int64_t n = c.inputs[1].shape.elements(), rows = c.inputs[0].shape[0],
                     elements = c.inputs[0].shape.elements(), width = rows == 0 ? 0 : elements / rows;
  return with_float("braid.AddRows", c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.scratch_bytes = IndexGroups::scratch_bytes(n);
    kernel.run = [=, place = place_of(c.node), index_type = c.inputs[1].dtype](const KernelArgs& a) {
      const IndexGroups groups = IndexGroups::checked(place, index_type, a.in<char>(1), n, rows, a.scratch);
      if (elements == 0) return;
      if (a.outputs[0] != a.inputs[0])
        std::memcpy(a.outputs[0], a.inputs[0], static_cast<std::size_t>(elements) * sizeof(T));
      add_groups(groups, a.in<T>(2), width, a.out<T>(0));
    };
    return kernel;
  });
}

/// Of x only the rows that are named are touched, where it is changed in place.
Cost cost(const InferContext& c, std::span<const OutputInfo>) {
  return {0, 3 * known_bytes({c.dtype(2), c.shape(2)}) + known_bytes({c.dtype(1), c.shape(1)})};
}

}  // namespace

void register_add_rows(OpRegistry& registry) {
  registry.add(takes_halves({.name = "braid.AddRows",
                             .traits = computes(),
                             .min_inputs = 3,
                             .max_inputs = 3,
                             .infer = infer,
                             .no_gradient_reason = "the compiler makes it, after gradients are made",
                             .cost = cost,
                             .cpu = prepare,
                             .in_place = {{0, 0}}},
                            {.kind = HalfKind::Move, .inputs = {0}, .outputs = {0}}));
}

}  // namespace braid
