// braid.SumRuns(values [..., width] of each list, entries) -> sums [n, width] of each list, n being the
// number of its values' rows: row k is the sum of the values whose positions want place k
// (braid.DistinctRows), in the order of positions. Rows behind the places are zero on the host; a device
// leaves them as they are unless the attribute `fill` is set. On a device sums of many are made in parts, as
// those of braid.SparseApplyGrouped.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/row_entries.h"
#include "engine/ops/common/row_sums.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

using Sizes = std::vector<std::int64_t>;

void infer(InferContext& c) {
  const auto sizes = c.attr(kRunSizes, Sizes{}), lists = c.attr(kRunLists, Sizes{});
  if (std::ssize(lists) + 1 != c.inputs()) c.fail("a list for each of the values is needed");
  for (int i = 0; i + 1 < c.inputs(); ++i) {
    const std::int64_t list = lists[static_cast<std::size_t>(i)];
    const Shape& values = c.shape(i);
    if (list < 0 || list >= std::ssize(sizes)) c.fail(fmt::format("list {} of {}", list, sizes.size()));
    if (c.dtype(i) != DType::Float32) c.fail("values must be float32");
    if (values.has_rank() && values.rank() < 1) c.fail("values need an axis of numbers");
    const std::int64_t width = values.has_rank() ? values[values.rank() - 1] : Shape::kUnknown;
    const std::int64_t n = sizes[static_cast<std::size_t>(list)];
    if (values.is_static() && values.elements() != n * width)
      c.fail(fmt::format("values {} are not {} rows", values.to_string(), n));
    c.output(DType::Float32, {n, width});
  }
  Shape merged;
  const std::int64_t all = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  if (!merge_shapes(c.shape(c.inputs() - 1), Shape{all}, merged)) c.fail("an entry for each value is needed");
}

Cost cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  Cost cost;
  for (int i = 0; i < c.inputs(); ++i) cost.bytes += known_bytes({c.dtype(i), c.shape(i)});
  for (const OutputInfo& output : outputs) {
    cost.bytes += known_bytes(output);
    cost.flops += known_elements(output.shape);
  }
  return cost;
}

PreparedKernel prepare(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [sums = std::vector<OutputInfo>(c.outputs.begin(), c.outputs.end()),
                bases = bases_of(c.attr(kRunSizes, Sizes{})),
                lists = c.attr(kRunLists, Sizes{})](const KernelArgs& a) {
    const auto* entries = a.in<std::int64_t>(static_cast<int>(sums.size()));
    for (std::size_t v = 0; v < sums.size(); ++v) {
      const std::int64_t n = sums[v].shape[0], width = sums[v].shape[1];
      const EntryBase base = bases[static_cast<std::size_t>(lists[v])];
      const auto* values = a.in<float>(static_cast<int>(v));
      auto* out = a.out<float>(static_cast<int>(v));
      std::fill_n(out, n * width, 0.0F);
      std::int64_t last = -1;
      for (std::int64_t e = base.entry; e < base.entry + n; ++e) {
        const std::int64_t place = (entries[e] >> kEntryPositionBits) - base.row;
        const std::int64_t position =
            (entries[e] & ((std::int64_t{1} << kEntryPositionBits) - 1)) - base.entry;
        const float* const row = values + position * width;
        if (place != last)
          std::copy_n(row, width, out + place * width);
        else
          add_row(out + place * width, row, width);
        last = place;
      }
    }
  };
  return kernel;
}

}  // namespace

void register_sum_runs(OpRegistry& registry) {
  registry.add({.name = "braid.SumRuns",
                .traits = computes().output_list(),
                .min_inputs = 2,
                .max_inputs = -1,
                .infer = infer,
                .no_gradient_reason = "sums gradients, after differentiation",
                .cost = cost,
                .cpu = prepare});
}

}  // namespace braid
