// braid.DistinctRows(ids, any shapes, of each table) -> rows [n] int32 of each table, places (int32, of the
// shape of ids) of each table, entries [sum of n] int64: the distinct rows that a batch names, and how to get
// back. n is the number of a table's ids; the attribute "rows" has the number of each table's rows.
//   rows     the distinct ids, rising; -1 behind them
//   places   where in that list an id's row is
//   entries  which positions want the row at a place, as braid.GroupRows makes them of places in tables of n
//            rows (engine/ops/common/row_entries.h)
// An id that is no row is InvalidArgument.
#include <algorithm>
#include <numeric>

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
  std::int64_t all = 0;
  for (int i = 0; i < c.inputs(); ++i) {
    require_index_dtype(c, i);
    const std::int64_t n = c.shape(i).is_static() ? c.shape(i).elements() : Shape::kUnknown;
    all = n < 0 || all < 0 ? Shape::kUnknown : all + n;
    c.output(DType::Int32, {n});
  }
  for (int i = 0; i < c.inputs(); ++i) c.output(DType::Int32, c.shape(i));
  c.output(DType::Int64, {all});
}

Cost cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  Cost cost = grouping_cost(known_elements(outputs.back().shape));
  for (int i = 0; i < c.inputs(); ++i) cost.bytes += known_bytes({c.dtype(i), c.shape(i)});
  for (const OutputInfo& output : outputs) cost.bytes += known_bytes(output);
  return cost;
}

/// `base` is where the table's places and entries begin.
template <class I>
void number(const std::string& place, const I* ids, std::int64_t n, std::int64_t rows, std::uint64_t base,
            void* scratch, std::int32_t* list, std::int32_t* places, std::int64_t* entries) {
  check_indices<I>(place, ids, n, rows);
  const IndexGroups groups(ids, n, rows, scratch);
  for (std::int64_t g = 0; g < groups.size(); ++g) {
    list[g] = static_cast<std::int32_t>(groups.index(g));
    for (std::int64_t e = groups.begin(g); e < groups.end(g); ++e) {
      places[groups.position(e)] = static_cast<std::int32_t>(g);
      entries[e] = static_cast<std::int64_t>(base + (static_cast<std::uint64_t>(g) << kEntryPositionBits |
                                                     static_cast<std::uint64_t>(groups.position(e))));
    }
  }
  std::fill(list + groups.size(), list + n, -1);
}

PreparedKernel prepare(const PrepareContext& c) {
  PreparedKernel kernel;
  for (const OutputInfo& ids : c.inputs)
    kernel.scratch_bytes = std::max(kernel.scratch_bytes, IndexGroups::scratch_bytes(ids.shape.elements()));
  kernel.run = [rows = c.attr<Rows>("rows", {}),
                inputs = std::vector<OutputInfo>(c.inputs.begin(), c.inputs.end()), place = place_of(c.node),
                name = c.node.op->name](const KernelArgs& a) {
    const auto tables = static_cast<int>(inputs.size());
    EntryBase base;
    for (int t = 0; t < tables; ++t) {
      const OutputInfo& ids = inputs[static_cast<std::size_t>(t)];
      const std::int64_t n = ids.shape.elements();
      with_index(name, ids.dtype, [&]<class I>() {
        number(place, a.in<I>(t), n, rows[static_cast<std::size_t>(t)], base.key(), a.scratch,
               a.out<std::int32_t>(t), a.out<std::int32_t>(tables + t),
               a.out<std::int64_t>(2 * tables) + base.entry);
      });
      base.pass(n, n);
    }
  };
  return kernel;
}

}  // namespace

void register_distinct_rows(OpRegistry& registry) {
  registry.add({.name = "braid.DistinctRows",
                .traits = computes().output_list(),
                .min_inputs = 1,
                .max_inputs = -1,
                .infer = infer,
                .no_gradient_reason = "indices have no gradient",
                .cost = cost,
                .cpu = prepare});
}

}  // namespace braid
