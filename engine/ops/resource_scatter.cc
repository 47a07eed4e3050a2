// ResourceScatterAdd and ResourceScatterSub(handle, indices, updates): var[indices[k], ...] += or -=
// updates[k], one after the other in the order of k, so duplicates all count.
#include <fmt/format.h>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  if (c.dtype(0) != DType::Resource)
    c.fail("input 0 must be a variable's handle, got " + std::string(dtype_name(c.dtype(0))));
  require_index_dtype(c, 1);
  require_number(c, 2);
  require_min_rank(c, 0, 1);
  const Shape& variable = c.shape(0);
  const Shape& indices = c.shape(1);
  if (!variable.has_rank() || !indices.has_rank()) return;
  std::vector<std::int64_t> dims(indices.dims().begin(), indices.dims().end());
  dims.insert(dims.end(), variable.dims().begin() + 1, variable.dims().end());
  const Shape expected(std::move(dims));
  Shape merged;
  if (!merge_shapes(expected, c.shape(2), merged))
    c.fail(fmt::format("updates must have shape {}, got {}", expected.to_string(), c.shape(2).to_string()));
}

template <class T, bool kSubtract>
void add_rows(const IndexGroups& groups, std::int64_t first, std::int64_t last, std::int64_t width,
              const T* updates, T* variable) {
  for (std::int64_t g = first; g < last; ++g) {
    T* row = variable + groups.index(g) * width;
    for (std::int64_t e = groups.begin(g); e < groups.end(g); ++e) {
      const T* update = updates + groups.position(e) * width;
      for (std::int64_t i = 0; i < width; ++i) row[i] = kSubtract ? row[i] - update[i] : row[i] + update[i];
    }
  }
}

template <bool kSubtract>
PreparedKernel prepare(const PrepareContext& c) {
  if (c.inputs[0].dtype != c.inputs[2].dtype)
    c.fail(fmt::format("the variable holds {}, the updates are {}", dtype_name(c.inputs[0].dtype),
                       dtype_name(c.inputs[2].dtype)));
  const std::int64_t n = c.inputs[1].shape.elements();
  const std::int64_t rows = c.inputs[0].shape[0];
  const std::int64_t width = rows == 0 ? 0 : c.inputs[0].shape.elements() / rows;
  return with_number("ResourceScatterAdd", c.inputs[0].dtype, [&]<class T>() {
    return with_index("ResourceScatterAdd", c.inputs[1].dtype, [&]<class I>() {
      PreparedKernel kernel;
      kernel.scratch_bytes = IndexGroups::scratch_bytes(n);
      kernel.run = [=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
        check_indices(place, a.in<I>(1), n, rows);
        const IndexGroups groups(a.in<I>(1), n, rows, a.scratch);
        pool->parallel_range(groups.size(), row_grain(width), [&](std::int64_t first, std::int64_t last) {
          add_rows<T, kSubtract>(groups, first, last, width, a.in<T>(2), a.var<T>(0));
        });
      };
      return kernel;
    });
  });
}

OpDef scatter_op(std::string name, PrepareFn cpu) {
  return {.name = std::move(name),
          .min_inputs = 3,
          .max_inputs = 3,
          .infer = infer,
          .no_gradient_reason = "it writes a variable",
          .cpu = std::move(cpu),
          .handles = {Access::ReadWrite},
          .side_effect = true};
}

}  // namespace

void register_resource_scatter(OpRegistry& registry) {
  registry.add(scatter_op("ResourceScatterAdd", prepare<false>));
  registry.add(scatter_op("ResourceScatterSub", prepare<true>));
}

}  // namespace braid
