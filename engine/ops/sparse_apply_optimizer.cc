// braid.SparseApplyOptimizer(handle, slot handles..., indices [n], values [n, row...]): one step of the
// optimizer that the attributes name for the rows that the indices name (base/optim.h). Duplicates are summed
// first, in order of position; rows that are not named keep their values and slots.
// braid.SparseApplyOptimizerMany does so for any number of tables, whose inputs follow one another
// (engine/ops/common/update_inputs.h). Learning rate, gradient scale and step number come from StepParams.
#include <algorithm>

#include "engine/ops/common/apply_rows.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/update_inputs.h"

namespace braid {
namespace {

struct Table {
  std::int64_t rows, width, indices;
  DType index_dtype;
};

template <class I>
void update_rows(const Table& t, const UpdateInputs& in, int v, const PreparedUpdate& update,
                 const std::string& place, ThreadPool& pool, const KernelArgs& a) {
  const I* indices = a.in<I>(in.gradient(v));
  check_indices(place, indices, t.indices, t.rows);
  const IndexGroups groups(indices, t.indices, t.rows, a.scratch);
  apply_summed_rows(pool, VariableRun(a, static_cast<std::size_t>(in.slots), in.handle(v)), t.width, groups,
                    a.in<float>(in.gradient(v) + 1), [&](auto weights, auto gradient, auto state) {
                      apply_update(update, weights, gradient, state);
                    });
}

PreparedKernel prepare(const PrepareContext& c) {
  const UpdateInputs in = prepared_update_inputs(c, 2);
  std::vector<Table> tables;
  PreparedKernel kernel;
  for (int v = 0; v < in.variables; ++v) {
    const Shape& shape = c.inputs[static_cast<std::size_t>(in.handle(v))].shape;
    const OutputInfo& indices = c.inputs[static_cast<std::size_t>(in.gradient(v))];
    tables.push_back(
        {shape[0], shape[0] == 0 ? 0 : shape.elements() / shape[0], indices.shape[0], indices.dtype});
    kernel.scratch_bytes = std::max(kernel.scratch_bytes, IndexGroups::scratch_bytes(tables.back().indices));
  }
  kernel.run = [in, tables = std::move(tables), pool = &c.pool, place = place_of(c.node),
                name = c.node.op->name](const KernelArgs& a) {
    const PreparedUpdate update = step_update(in.spec, *a.params);
    for (int v = 0; v < in.variables; ++v) {
      const Table& t = tables[static_cast<std::size_t>(v)];
      with_index(name, t.index_dtype, [&]<class I>() { update_rows<I>(t, in, v, update, place, *pool, a); });
    }
  };
  return kernel;
}

}  // namespace

void register_sparse_apply_optimizer(OpRegistry& registry) {
  registry.add(update_op("braid.SparseApplyOptimizer", 2, false, prepare));
  registry.add(update_op("braid.SparseApplyOptimizerMany", 2, true, prepare));
}

}  // namespace braid
