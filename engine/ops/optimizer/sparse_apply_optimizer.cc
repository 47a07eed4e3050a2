// braid.SparseApplyOptimizer(handle, slot handles..., indices [n], values [n, row...]): one step of the
// optimizer that the attributes name for the rows that the indices name (base/optim.h). Duplicates are summed
// first, in order of position; rows that are not named keep their values and slots. With the attribute
// skip_negative a negative index names no row. Values may be of 16 bits; they are summed and applied in
// float32.
// braid.SparseApplyOptimizerMany does so for any number of tables, whose inputs follow one another
// (engine/ops/optimizer/update_inputs.h, also for values that are those of bags, or parts of wider rows).
// braid.SparseApplyGrouped( handle, slot handles..., values, ... of each table, entries) gets what the
// indices say from braid.GroupRows. Learning rate, gradient scale and step number come from StepParams.
#include <fmt/format.h>

#include <algorithm>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/row_entries.h"
#include "engine/ops/optimizer/apply_rows.h"
#include "engine/ops/optimizer/update_inputs.h"

namespace braid {
namespace {

struct Table {
  std::int64_t rows, width, indices;
  std::int64_t stride;  // of values
  DType index_dtype;    // where there are indices
};

using Tables = std::vector<Table>;

Tables tables_of(const PrepareContext& c, const UpdateInputs& in) {
  Tables tables;
  for (int v = 0; v < in.variables; ++v) {
    const Shape& shape = c.inputs[static_cast<std::size_t>(in.handle(v))].shape;
    tables.push_back({shape[0], shape[0] == 0 ? 0 : shape.elements() / shape[0], in.indices(c.inputs, v),
                      in.stride_of_values(c.inputs, v),
                      c.inputs[static_cast<std::size_t>(in.gradient(v))].dtype});
  }
  return tables;
}

std::size_t groups_bytes(const Table& t) { return (IndexGroups::scratch_bytes(t.indices) + 63) / 64 * 64; }

/// Behind the groups: sums of whole rows.
std::size_t scratch_bytes(const Tables& tables, const UpdateInputs& in) {
  std::size_t most = 0;
  for (const Table& t : tables) {
    const std::int64_t grain = row_grain(t.width), blocks = (t.indices + grain - 1) / grain;
    const auto sums = static_cast<std::size_t>(in.spec.row_wise ? blocks * t.width : 0) * sizeof(float);
    most = std::max(most, groups_bytes(t) + sums);
  }
  return most;
}

/// Rows of bags that do not exist are refused.
void check_bags(const std::string& place, const std::int32_t* bags, std::int64_t n, std::int64_t count) {
  for (std::int64_t k = 0; k < n; ++k)
    if (bags[k] < 0 || bags[k] >= count)
      throw InvalidArgument(fmt::format("{}: bags[{}] = {} is not in [0, {})", place, k, bags[k], count));
}

GradientRows gradient_rows(const UpdateInputs& in, int v, const Table& t, const KernelArgs& a) {
  return {.values = a.in<float>(in.values(v)) + in.offset(v),
          .hot = in.hot(v),
          .bags = in.has_bags ? a.in<std::int32_t>(in.bags(v)) : nullptr,
          .weights = in.weighted ? a.in<float>(in.weights(v)) : nullptr,
          .width = t.width,
          .stride = t.stride};
}

void update_rows(const Table& t, const UpdateInputs& in, int v, const IndexGroups& groups,
                 const PreparedUpdate& update, ThreadPool& pool, const KernelArgs& a) {
  const VariableRun run(a, static_cast<std::size_t>(in.slots), in.handle(v));
  const GradientRows gradients = gradient_rows(in, v, t, a);
  if (in.spec.row_wise)
    apply_summed_whole_rows(
        pool, run, t.rows, groups, gradients,
        reinterpret_cast<float*>(static_cast<char*>(a.scratch) + groups_bytes(t)), row_grain(t.width),
        [&](auto weights, auto gradient, float& slot) { apply_row_update(update, weights, gradient, slot); });
  else
    apply_summed_rows(pool, run, t.rows, groups, gradients, [&](auto weights, auto gradient, auto state) {
      apply_update(update, weights, gradient, state);
    });
}

std::vector<std::int64_t> bag_counts(const PrepareContext& c, const UpdateInputs& in) {
  std::vector<std::int64_t> counts;
  for (int v = 0; v < in.variables; ++v)
    counts.push_back(c.inputs[static_cast<std::size_t>(in.values(v))].shape[0]);
  return counts;
}

PreparedKernel prepare(const PrepareContext& c) {
  const UpdateInputs in = prepared_update_inputs(c, 2);
  PreparedKernel kernel;
  Tables tables = tables_of(c, in);
  kernel.scratch_bytes = scratch_bytes(tables, in);
  kernel.run = [in, tables = std::move(tables), bags = bag_counts(c, in), pool = &c.pool,
                place = place_of(c.node), name = c.node.op->name,
                padded = c.attr(kSkipNegative, false)](const KernelArgs& a) {
    const PreparedUpdate update = step_update(in.spec, *a.params, in.factor_of(a));
    for (int v = 0; v < in.variables; ++v) {
      const Table& t = tables[static_cast<std::size_t>(v)];
      if (in.has_bags)
        check_bags(place, a.in<std::int32_t>(in.bags(v)), t.indices, bags[static_cast<std::size_t>(v)]);
      with_index(name, t.index_dtype, [&]<class I>() {
        const I* indices = a.in<I>(in.gradient(v));
        (padded ? check_segment_ids<I> : check_indices<I>)(place, indices, t.indices, t.rows);
        update_rows(t, in, v, IndexGroups(indices, t.indices, t.rows, a.scratch), update, *pool, a);
      });
    }
  };
  return kernel;
}

PreparedKernel prepare_grouped(const PrepareContext& c) {
  const UpdateInputs in = prepared_update_inputs(c, 1);
  PreparedKernel kernel;
  Tables tables = tables_of(c, in);
  kernel.scratch_bytes = scratch_bytes(tables, in);
  kernel.run = [in, tables = std::move(tables), bags = bag_counts(c, in), pool = &c.pool,
                place = place_of(c.node)](const KernelArgs& a) {
    const PreparedUpdate update = step_update(in.spec, *a.params, in.factor_of(a, true));
    const auto* entries = a.in<std::int64_t>(in.entries());
    auto* own = static_cast<std::uint64_t*>(a.scratch);
    EntryBase base;
    for (int v = 0; v < in.variables; ++v) {
      const Table& t = tables[static_cast<std::size_t>(v)];
      if (in.has_bags)
        check_bags(place, a.in<std::int32_t>(in.bags(v)), t.indices, bags[static_cast<std::size_t>(v)]);
      std::transform(entries + base.entry, entries + base.entry + t.indices, own,
                     [key = base.key()](std::int64_t e) { return static_cast<std::uint64_t>(e) - key; });
      update_rows(t, in, v, IndexGroups(t.indices, a.scratch), update, *pool, a);
      base.pass(t.rows, t.indices);
    }
  };
  return kernel;
}

}  // namespace

void register_sparse_apply_optimizer(OpRegistry& registry) {
  const HalfForm by_indices{.kind = HalfKind::Follower,
                            .inputs_of = [](const Node& node) { return value_inputs(node, 2); }};
  const HalfForm grouped{.kind = HalfKind::Follower,
                         .inputs_of = [](const Node& node) { return value_inputs(node, 1); }};
  registry.add(takes_halves(update_op("braid.SparseApplyOptimizer", 2, false, prepare), by_indices));
  registry.add(takes_halves(update_op("braid.SparseApplyOptimizerMany", 2, true, prepare), by_indices));
  registry.add(takes_halves(grouped_update_op("braid.SparseApplyGrouped", prepare_grouped), grouped));
}

}  // namespace braid
