// CUDA kernels of braid.SumRuns: the sums of row_runs.cuh, written where the optimizer's kernels update.
#include <bit>
#include <vector>

#include "engine/ops/common/row_entries.h"
#include "engine/ops/optimizer/row_tile.cuh"

namespace braid {
namespace {

/// As update_rows_kernel: a table's weights are the sums of its places.
template <int kPack>
__global__ void __launch_bounds__(cuda::kThreads)
    store_sums_kernel(const __grid_constant__ cuda::RowTables tables,
                      const __grid_constant__ cuda::RowRuns runs) {
  __shared__ cuda::RowTile tile;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * cuda::kThreads;
  const int starts = cuda::load_tile(tile, tables, runs, first);
  const int lane = static_cast<int>(threadIdx.x) & (runs.lanes - 1), groups = cuda::kThreads / runs.lanes;
  for (int s = static_cast<int>(threadIdx.x) / runs.lanes; s < starts; s += groups) {
    const int at = tile.starts[s];
    const std::int64_t row = tile.row(at);
    const cuda::RowTable& t = tables.at[tables.index_of(row, tile.first_table, tile.last_table + 1)];
    for (std::int64_t column = lane * kPack; column < tables.width; column += runs.lanes * kPack)
      *reinterpret_cast<cuda::Pack<float, kPack>*>(t.weights + (row - t.first_row) * tables.width + column) =
          cuda::sum_of_run<float, kPack>(tile, at, t, runs, first + at, tables.width, column);
  }
}

/// Values of one width whose lists are behind each other, summed together.
struct Batch {
  int first, count;
  EntryBase base;
  std::int64_t entries, width;

  std::size_t scratch_bytes() const {
    return static_cast<std::size_t>((entries + cuda::kShort - 1) / cuda::kShort * 2 * width) * sizeof(float);
  }
};

class RunSums {
 public:
  explicit RunSums(const PrepareContext& c) {
    const auto sizes = c.attr(kRunSizes, std::vector<std::int64_t>{}),
               lists = c.attr(kRunLists, std::vector<std::int64_t>{});
    const std::vector<EntryBase> bases = bases_of(sizes);
    for (std::size_t v = 0; v < c.outputs.size(); ++v) {
      const std::int64_t n = c.outputs[v].shape[0], width = c.outputs[v].shape[1];
      n_.push_back(n);
      if (batches_.empty() || batches_.back().width != width || batches_.back().count == cuda::kMostTables ||
          lists[v] != lists[v - 1] + 1)
        batches_.push_back({static_cast<int>(v), 0, bases[static_cast<std::size_t>(lists[v])], 0, width});
      ++batches_.back().count;
      batches_.back().entries += n;
    }
  }

  std::size_t scratch_bytes() const {
    std::size_t most = 0;
    for (const Batch& batch : batches_) most = std::max(most, batch.scratch_bytes());
    return most;
  }

  void run(const KernelArgs& a) const {
    const auto* entries = a.in<std::uint64_t>(static_cast<int>(n_.size()));
    for (const Batch& batch : batches_) {
      if (batch.entries == 0 || batch.width == 0) continue;
      cuda::RowTables tables;
      tables.width = batch.width;
      EntryBase base = batch.base;
      bool packed = batch.width % 4 == 0;
      for (int t = batch.first; t < batch.first + batch.count; ++t) {
        const std::int64_t n = n_[static_cast<std::size_t>(t)];
        cuda::RowTable& table = tables.at[tables.count++];
        table = {.weights = a.out<float>(t),
                 .slots = {},
                 .values = a.inputs[t],
                 .bags = nullptr,
                 .value_weights = nullptr,
                 .rows = static_cast<std::int32_t>(n),
                 .first_row = static_cast<std::int32_t>(base.row),
                 .first_entry = static_cast<std::int32_t>(base.entry),
                 .stride = static_cast<std::int32_t>(batch.width),
                 .by_hot = cuda::Divider(1)};
        packed = packed && cuda::is_aligned16(table.weights) && cuda::is_aligned16(table.values);
        base.pass(n, n);
      }
      const std::uint64_t* const own = entries + batch.base.entry;
      if (packed)
        sum<4>(a, batch, tables, own);
      else
        sum<1>(a, batch, tables, own);
    }
  }

 private:
  template <int kPack>
  static void sum(const KernelArgs& a, const Batch& batch, const cuda::RowTables& tables,
                  const std::uint64_t* entries) {
    const cuda::RowRuns runs =
        cuda::runs_of(entries, static_cast<float*>(a.scratch), batch.entries, batch.width, kPack);
    cuda::sum_long_runs<float, kPack>(a.stream, tables, runs);
    const std::int64_t blocks = (runs.n + cuda::kThreads - 1) / cuda::kThreads;
    cuda::launch(store_sums_kernel<kPack>, static_cast<unsigned>(blocks), cuda::kThreads, 0, a.stream, tables,
                 runs);
  }

  std::vector<std::int64_t> n_;
  std::vector<Batch> batches_;
};

PreparedKernel prepare(const PrepareContext& c) {
  RunSums sums(c);
  std::vector<std::size_t> bytes;
  if (c.attr("fill", false))
    for (const OutputInfo& output : c.outputs)
      bytes.push_back(static_cast<std::size_t>(output.shape.elements()) * sizeof(float));
  PreparedKernel kernel;
  kernel.scratch_bytes = sums.scratch_bytes();
  kernel.run = [sums = std::move(sums), bytes = std::move(bytes),
                device = c.accelerator](const KernelArgs& a) {
    for (std::size_t t = 0; t < bytes.size(); ++t)
      if (bytes[t] != 0) device->fill_zero(a.outputs[t], bytes[t], a.stream);
    sums.run(a);
  };
  return kernel;
}

}  // namespace

void register_sum_runs_cuda(OpRegistry& registry) { registry.add_cuda("braid.SumRuns", prepare); }

}  // namespace braid
