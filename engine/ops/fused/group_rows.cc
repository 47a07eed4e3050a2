// braid.GroupRows(indices [n] of each table...) -> entries [sum of n] int64: which positions name which row,
// in the order of tables, rows and positions (engine/ops/common/row_entries.h). The attribute "rows" has the
// number of each table's rows. An index out of range is InvalidArgument; with the attribute skip_negative a
// negative one counts as the row behind its table's. The compiler takes it out of sparse
// updates (engine/rewrite/split_updates.cc), so that the sort need not wait for gradients.
#include <algorithm>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/row_entries.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

using Rows = std::vector<std::int64_t>;

void infer(InferContext& c) {
  const Rows rows = c.attr<Rows>("rows", {});
  if (rows.size() != static_cast<std::size_t>(c.inputs()))
    c.fail("rows: expected those of " + std::to_string(c.inputs()) + " tables, got " +
           std::to_string(rows.size()));
  std::int64_t entries = 0;
  for (int i = 0; i < c.inputs(); ++i) {
    c.require_rank(i, 1);
    require_index_dtype(c, i);
    const std::int64_t n = c.shape(i).has_rank() ? c.shape(i)[0] : Shape::kUnknown;
    entries = n < 0 || entries < 0 ? Shape::kUnknown : entries + n;
  }
  c.output(DType::Int64, {entries});
}

Cost cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  Cost cost = grouping_cost(known_elements(outputs[0].shape));
  for (int i = 0; i < c.inputs(); ++i) cost.bytes += known_bytes({c.dtype(i), c.shape(i)});
  return cost;
}

template <class I>
void group(const std::string& place, const I* indices, std::int64_t n, std::int64_t rows, bool padded,
           std::uint64_t base, void* scratch, std::int64_t* entries) {
  (padded ? check_segment_ids<I> : check_indices<I>)(place, indices, n, rows);
  const IndexGroups groups(indices, n, rows, scratch);
  std::int64_t left = groups.size() == 0 ? 0 : groups.end(groups.size() - 1);
  for (std::int64_t k = 0; k < n; ++k)
    if (indices[k] < 0)
      entries[left++] = static_cast<std::int64_t>(
          base + (static_cast<std::uint64_t>(rows) << kEntryPositionBits | static_cast<std::uint64_t>(k)));
  for (std::int64_t g = 0; g < groups.size(); ++g)
    for (std::int64_t e = groups.begin(g); e < groups.end(g); ++e)
      entries[e] = static_cast<std::int64_t>(
          base + (static_cast<std::uint64_t>(groups.index(g)) << kEntryPositionBits |
                  static_cast<std::uint64_t>(groups.position(e))));
}

PreparedKernel prepare(const PrepareContext& c) {
  PreparedKernel kernel;
  for (const OutputInfo& indices : c.inputs)
    kernel.scratch_bytes = std::max(kernel.scratch_bytes, IndexGroups::scratch_bytes(indices.shape[0]));
  kernel.run = [rows = c.attr<Rows>("rows", {}),
                inputs = std::vector<OutputInfo>(c.inputs.begin(), c.inputs.end()), place = place_of(c.node),
                name = c.node.op->name, padded = c.attr(kSkipNegative, false)](const KernelArgs& a) {
    EntryBase base;
    for (std::size_t t = 0; t < inputs.size(); ++t) {
      const int input = static_cast<int>(t);
      const std::int64_t n = inputs[t].shape[0];
      with_index(name, inputs[t].dtype, [&]<class I>() {
        group(place, a.in<I>(input), n, rows[t], padded, base.key(), a.scratch,
              a.out<std::int64_t>(0) + base.entry);
      });
      base.pass(rows[t], n);
    }
  };
  return kernel;
}

}  // namespace

void register_group_rows(OpRegistry& registry) {
  registry.add({.name = "braid.GroupRows",
                .traits = computes(),
                .min_inputs = 1,
                .max_inputs = -1,
                .infer = infer,
                .no_gradient_reason = "indices have no gradient",
                .cost = cost,
                .cpu = prepare});
}

}  // namespace braid
