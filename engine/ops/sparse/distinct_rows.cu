// CUDA kernel of braid.DistinctRows: ids are grouped (common/cuda/row_grouping.h), and a block a table counts
// the groups. Each thread takes entries behind each other: it counts those that begin a group, the counts are
// added up, and it numbers its groups from there on.
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/row_grouping.h"
#include "engine/ops/common/row_entries.h"

namespace braid {
namespace {

constexpr int kBlock = 1024, kWarp = 32, kWarps = kBlock / kWarp;
constexpr int kMostTables = 80;  // a kernel's arguments are 4 KiB

struct Table {
  std::int32_t* list;
  std::int32_t* places;
  std::int32_t rows, n;
  std::int32_t first_row;    // in the grouped entries
  std::int32_t first_entry;  // in both
  std::int32_t first_place;  // in the entries that are made
};

struct Tables {
  int count = 0;
  Table at[kMostTables];
};

__device__ int exclusive_sum(int value, int (&of_warp)[kWarps], int& all) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  int sum = value;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int other = __shfl_up_sync(0xffffffffU, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == kWarp - 1) of_warp[warp] = sum;
  __syncthreads();
  int before = 0;
  all = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += of_warp[w];
    all += of_warp[w];
  }
  return before + sum - value;
}

/// `grouped` by rows becomes `entries` by places.
__global__ void __launch_bounds__(kBlock)
    number_rows_kernel(const __grid_constant__ Tables tables, const std::uint64_t* grouped,
                       std::uint64_t* entries) {
  __shared__ int of_warp[kWarps];
  const Table& t = tables.at[blockIdx.x];
  const std::uint64_t* const own = grouped + t.first_entry;
  const int each = (t.n + kBlock - 1) / kBlock;
  const int begin = min(static_cast<int>(threadIdx.x) * each, t.n), end = min(begin + each, t.n);
  const auto row_at = [&](int e) { return static_cast<std::uint32_t>(own[e] >> kEntryPositionBits); };
  int starts = 0;
  for (int e = begin; e < end; ++e) starts += e == 0 || row_at(e) != row_at(e - 1) ? 1 : 0;
  int all = 0;
  int place = exclusive_sum(starts, of_warp, all) - 1;
  for (int e = begin; e < end; ++e) {
    const std::uint32_t row = row_at(e);
    const auto position = static_cast<std::uint32_t>(own[e]);
    if (e == 0 || row != row_at(e - 1)) {
      const auto id = static_cast<std::int32_t>(row) - t.first_row;
      t.list[++place] = id < t.rows ? id : -1;  // one that is no row was reported
    }
    t.places[position - static_cast<std::uint32_t>(t.first_entry)] = place;
    entries[t.first_entry + e] =
        static_cast<std::uint64_t>(t.first_place + place) << kEntryPositionBits | position;
  }
  for (int rest = all + static_cast<int>(threadIdx.x); rest < t.n; rest += kBlock) t.list[rest] = -1;
}

class Numbering {
 public:
  Numbering(const PrepareContext& c) : rows_(c.node.attrs.require<std::vector<std::int64_t>>("rows")) {
    for (const OutputInfo& ids : c.inputs) n_.push_back(ids.shape.elements());
  }

  void run(const KernelArgs& a, const std::uint64_t* grouped) const {
    const auto count = static_cast<int>(n_.size());
    EntryBase by_row, by_place;
    Tables tables;
    for (int t = 0; t < count; ++t) {
      const auto at = static_cast<std::size_t>(t);
      tables.at[tables.count++] = {a.out<std::int32_t>(t),
                                   a.out<std::int32_t>(count + t),
                                   static_cast<std::int32_t>(rows_[at]),
                                   static_cast<std::int32_t>(n_[at]),
                                   static_cast<std::int32_t>(by_row.row),
                                   static_cast<std::int32_t>(by_row.entry),
                                   static_cast<std::int32_t>(by_place.row)};
      by_row.pass(rows_[at], n_[at]);
      by_place.pass(n_[at], n_[at]);
      if (tables.count < kMostTables && t + 1 < count) continue;
      cuda::launch(number_rows_kernel, static_cast<unsigned>(tables.count), kBlock, 0, a.stream, tables,
                   grouped, a.out<std::uint64_t>(2 * count));
      tables.count = 0;
    }
  }

 private:
  std::vector<std::int64_t> rows_, n_;
};

/// By rows, and by places.
std::vector<cuda::IndexedTable> tables_of(const Node& node, std::span<const OutputInfo> inputs,
                                          bool by_place) {
  const auto rows = node.attrs.require<std::vector<std::int64_t>>("rows");
  std::vector<cuda::IndexedTable> tables;
  for (std::size_t t = 0; t < inputs.size(); ++t) {
    const std::int64_t n = inputs[t].shape.elements();
    tables.push_back({by_place ? n : rows[t], n, inputs[t].dtype == DType::Int64});
  }
  return tables;
}

PreparedKernel prepare(const PrepareContext& c) {
  cuda::RowGrouping grouping(tables_of(c.node, c.inputs, false));
  const std::size_t grouped_bytes =
      (static_cast<std::size_t>(grouping.entries()) * sizeof(std::uint64_t) + 255) / 256 * 256;
  PreparedKernel kernel;
  kernel.scratch_bytes = grouped_bytes + grouping.scratch_bytes();
  kernel.run = [grouping = std::move(grouping), grouped_bytes,
                numbering = Numbering(c)](const KernelArgs& a) {
    auto* const grouped = static_cast<std::uint64_t*>(a.scratch);
    grouping.run(a, 0, 1, static_cast<char*>(a.scratch) + grouped_bytes, grouped);
    numbering.run(a, grouped);
  };
  return kernel;
}

bool supports(const Node& node, std::span<const OutputInfo> inputs) {
  return cuda::fits_entries(tables_of(node, inputs, false)) &&
         cuda::fits_entries(tables_of(node, inputs, true));
}

}  // namespace

void register_distinct_rows_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.DistinctRows", prepare, supports);
}

}  // namespace braid
