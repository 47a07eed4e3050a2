// What goes with the lists of braid.BucketIds, whose rows are exchanged as [ranks, C, width]:
//   braid.Unbucket(rows [ranks, C, width], places [...]) -> [..., row]: the row of each id. With the
//   attribute
//     blocks "columns" a rank has sent its columns of every row: block r has columns r * width on, places are
//     those of a block, and a row is ranks * width wide.
//   braid.SumBuckets(values [n, row...], entries [n], buckets [ranks, C]) -> [ranks, C, width]: the values of
//   each
//     place's ids, summed in the order of their positions; entries of -1 name none. blocks "columns": block r
//     gets columns r * width on of every sum; "copies": every block gets all sums. Places where buckets has
//     -1 hold no numbers, unless the attribute `fill` asks for zeros.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/row_entries.h"
#include "engine/ops/common/row_sums.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

enum class Blocks { Own, Columns, Copies };

constexpr std::int64_t kNoPlace = 0xffffffff;  // of an entry -1

Blocks blocks_of(const Node& node) {
  const auto name = node.attrs.get<std::string>("blocks", "own");
  return name == "columns" ? Blocks::Columns : name == "copies" ? Blocks::Copies : Blocks::Own;
}

void infer_unbucket(InferContext& c) {
  require_dtype(c, 0, {DType::Float32, DType::Float64});
  require_index_dtype(c, 1);
  c.require_rank(0, 3);
  const Shape &rows = c.shape(0), &places = c.shape(1);
  if (!rows.has_rank() || !places.has_rank()) return c.output(c.dtype(0), Shape::unknown_rank());
  std::vector<std::int64_t> dims(places.dims().begin(), places.dims().end());
  const bool columns = blocks_of(c.node()) == Blocks::Columns;
  dims.push_back(!columns                                                   ? rows[2]
                 : rows[0] == Shape::kUnknown || rows[2] == Shape::kUnknown ? Shape::kUnknown
                                                                            : rows[0] * rows[2]);
  c.output(c.dtype(0), Shape(std::move(dims)));
}

template <class I>
PreparedKernel unbucket(const PrepareContext& c) {
  const Shape& rows = c.inputs[0].shape;
  const bool columns = blocks_of(c.node) == Blocks::Columns;
  const std::int64_t ranks = columns ? rows[0] : 1, places = columns ? rows[1] : rows[0] * rows[1];
  const std::int64_t n = c.inputs[1].shape.elements(), width = rows[2];
  const std::size_t row_bytes = static_cast<std::size_t>(width) * dtype_size(c.inputs[0].dtype);
  return serial_kernel([=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
    const I* at = a.in<I>(1);
    check_indices(place, at, n, places);
    pool->parallel_range(n, row_grain(width * ranks), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = begin; k < end; ++k)
        for (std::int64_t r = 0; r < ranks; ++r)
          std::memcpy(a.out<char>(0) + static_cast<std::size_t>(k * ranks + r) * row_bytes,
                      a.in<char>(0) + static_cast<std::size_t>(r * places + at[k]) * row_bytes, row_bytes);
    });
  });
}

PreparedKernel prepare_unbucket(const PrepareContext& c) {
  return with_index("braid.Unbucket", c.inputs[1].dtype, [&]<class I>() { return unbucket<I>(c); });
}

void infer_sum(InferContext& c) {
  require_dtype(c, 0, {DType::Float32, DType::Float64});
  require_min_rank(c, 0, 1);
  require_dtype(c, 1, {DType::Int64});
  c.require_rank(1, 1);
  c.require_rank(2, 2);
  const Shape &values = c.shape(0), &buckets = c.shape(2);
  if (!values.has_rank() || !buckets.has_rank()) return c.output(c.dtype(0), {-1, -1, -1});
  if (c.shape(1).has_rank() && c.shape(1)[0] >= 0 && values[0] >= 0 && c.shape(1)[0] != values[0])
    c.fail(fmt::format("{} rows of values, but {} entries", values[0], c.shape(1)[0]));
  std::int64_t width = 1;
  for (int axis = 1; axis < values.rank(); ++axis)
    width = width < 0 || values[axis] < 0 ? Shape::kUnknown : width * values[axis];
  if (blocks_of(c.node()) == Blocks::Columns && buckets[0] < 0) width = Shape::kUnknown;
  if (blocks_of(c.node()) == Blocks::Columns && width >= 0 && buckets[0] > 0) {
    if (width % buckets[0] != 0) c.fail(fmt::format("{} columns on {} ranks", width, buckets[0]));
    width /= buckets[0];
  }
  c.output(c.dtype(0), {buckets[0], buckets[1], width});
}

/// Sums of places, written where the ranks want them.
template <class T>
PreparedKernel sum(const PrepareContext& c) {
  const Blocks blocks = blocks_of(c.node);
  const Shape& out = c.outputs[0].shape;
  const std::int64_t n = c.inputs[1].shape[0], ranks = out[0], capacity = out[1], width = out[2];
  const std::int64_t all = blocks == Blocks::Columns ? width * ranks : width;  // of a sum
  const std::int64_t places = blocks == Blocks::Own ? ranks * capacity : capacity;
  const bool fills = c.attr("fill", false);
  PreparedKernel kernel;
  kernel.scratch_bytes = IndexGroups::scratch_bytes(n);
  kernel.run = [=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
    if (n > 0) std::memcpy(a.scratch, a.inputs[1], static_cast<std::size_t>(n) * sizeof(std::uint64_t));
    const IndexGroups groups(n, a.scratch);
    std::int64_t count = groups.size();
    if (count > 0 && groups.index(count - 1) == kNoPlace) --count;
    if (count > 0 && groups.index(count - 1) >= places)
      throw InvalidArgument(
          fmt::format("{}: an entry of place {} in lists of {}", place, groups.index(count - 1), places));
    T* const to = a.out<T>(0);
    if (fills) std::fill_n(to, ranks * capacity * width, T{});
    const auto parts = blocks == Blocks::Own ? 1 : ranks;
    pool->parallel_range(count, row_grain(all), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t g = first; g < last; ++g)
        for (std::int64_t r = 0; r < parts; ++r) {
          T* const row = to + (r * capacity + groups.index(g)) * width;
          const std::int64_t column = blocks == Blocks::Columns ? r * width : 0;
          const T* const values = a.in<T>(0) + column;
          std::copy_n(values + groups.position(groups.begin(g)) * all, width, row);
          for (std::int64_t e = groups.begin(g) + 1; e < groups.end(g); ++e)
            add_row(row, values + groups.position(e) * all, width);
        }
    });
  };
  return kernel;
}

PreparedKernel prepare_sum(const PrepareContext& c) {
  if (c.inputs[0].dtype == DType::Float64) return sum<double>(c);
  return sum<float>(c);
}

Cost sum_cost(const InferContext& c, std::span<const OutputInfo>) {
  const double elements = known_elements(c.shape(0));
  return {elements, 12 * elements};
}

Cost unbucket_cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  return {0, 2 * known_bytes(outputs[0]) + known_bytes({c.dtype(1), c.shape(1)})};
}

}  // namespace

void register_bucket_rows(OpRegistry& registry) {
  registry.add({.name = "braid.Unbucket",
                .traits = moves(),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_unbucket,
                .no_gradient_reason = "strategies make it, after gradients are made",
                .cost = unbucket_cost,
                .cpu = prepare_unbucket});
  registry.add({.name = "braid.SumBuckets",
                .traits = computes(),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer_sum,
                .no_gradient_reason = "strategies make it, after gradients are made",
                .cost = sum_cost,
                .cpu = prepare_sum,
                .shape_only = {2}});
}

}  // namespace braid
