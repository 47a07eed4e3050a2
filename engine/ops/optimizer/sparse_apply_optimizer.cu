// CUDA kernels of braid.SparseApplyOptimizer, braid.SparseApplyOptimizerMany and braid.SparseApplyGrouped.
// The first two group the rows of all tables (common/cuda/row_grouping.h), the third gets them grouped. A few
// lanes then take each row that is named: they sum its gradients (row_runs.cuh) and update the row; nothing
// else of a table is touched.
#include <algorithm>
#include <vector>

#include "engine/ops/common/halves.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/row_entries.h"
#include "engine/ops/optimizer/row_runs.cuh"
#include "engine/ops/optimizer/update_inputs.h"

namespace braid {
namespace {

// Blocks of a multiprocessor: what registers leave room for without spills.
constexpr int kBlocksByElement = 3, kBlocksByRow = 4;
constexpr int kRowsAhead = 2;  // that lanes ask for before their turn

/// Where the lanes of a thread's row are, and what they share.
struct Lanes {
  int column_lane, group, groups;
  unsigned mask;  // those of the row, in their warp

  __device__ explicit Lanes(int lanes)
      : column_lane(static_cast<int>(threadIdx.x) & (lanes - 1)),
        group(static_cast<int>(threadIdx.x) / lanes),
        groups(cuda::kThreads / lanes) {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
    mask = lanes == cuda::kWarp ? cuda::kAllLanes : ((1U << lanes) - 1) << (lane - column_lane);
  }
};

/// Asks for what the update of the tile's s-th row reads first: a row is few loads, each of which would be
/// waited for. `row_wise`: its slot is a number.
template <class V, int kPack, bool kRowWise>
__device__ void prefetch_row(const cuda::RowTile& tile, const cuda::RowTables& tables, const Lanes& lanes,
                             int s, int starts) {
  if (s >= starts) return;
  const int at = tile.starts[s];
  const std::int64_t row = tile.row(at), width = tables.width, column = lanes.column_lane * kPack;
  const cuda::RowTable& t = tables.at[tables.index_of(row, tile.first_table, tile.last_table + 1)];
  if (row - t.first_row >= t.rows || column >= width) return;
  const std::int64_t element = (row - t.first_row) * width + column;
  cuda::prefetch(t.weights + element);
  if constexpr (kRowWise) {
    if (column == 0) cuda::prefetch(t.slots[0] + (row - t.first_row));
  } else {
#pragma unroll
    for (float* const slot : t.slots)
      if (slot) cuda::prefetch(slot + element);
  }
  if (tile.row(at + cuda::kShort) != row)
    cuda::prefetch(cuda::LoadValues<V, kPack>{t, column}.at(
        t.value_of(cuda::position_of(tile.entry(at)) - t.first_entry)));
}

/// Block b takes the b-th kThreads entries. Its lanes take the rows whose runs begin there, one after
/// another.
template <class V, int kPack, bool kBasic>
__global__ void __launch_bounds__(cuda::kThreads, kBasic ? kBlocksByElement : 1)
    update_rows_kernel(const __grid_constant__ cuda::RowTables tables,
                       const __grid_constant__ cuda::RowRuns runs, const __grid_constant__ OptimizerSpec spec,
                       const StepParams* params, const float* factor) {
  __shared__ PreparedUpdate shared;
  __shared__ cuda::RowTile tile;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * cuda::kThreads;
  const int starts = cuda::load_tile(tile, tables, runs, first);
  cuda::load_update(shared, spec, params, factor);
  const PreparedUpdate u = shared;
  const Lanes lanes(runs.lanes);
  for (int k = 1; k <= kRowsAhead; ++k)
    prefetch_row<V, kPack, false>(tile, tables, lanes, lanes.group + k * lanes.groups, starts);
  for (int s = lanes.group; s < starts; s += lanes.groups) {
    prefetch_row<V, kPack, false>(tile, tables, lanes, s + (kRowsAhead + 1) * lanes.groups, starts);
    const int at = tile.starts[s];
    const std::int64_t row = tile.row(at);
    const cuda::RowTable& t = tables.at[tables.index_of(row, tile.first_table, tile.last_table + 1)];
    if (row - t.first_row >= t.rows) continue;  // an index out of range
    float* const slots[cuda::kSlots] = {t.slots[0], t.slots[1], t.slots[2]};
    for (std::int64_t column = lanes.column_lane * kPack; column < tables.width;
         column += runs.lanes * kPack) {
      const auto sum = cuda::sum_of_run<V, kPack>(tile, at, t, runs, first + at, tables.width, column);
      const std::int64_t element = (row - t.first_row) * tables.width + column;
      cuda::with_formula<kBasic>(u, [&]<class Formula>() {
        cuda::update_pack<Formula, kPack, kBasic>(u, sum, t.weights, slots, element);
      });
    }
  }
}

/// The same for row-wise Adagrad: its accumulator of a row is a number, and what is added to it the mean of
/// the gradient's squares.
template <class V, int kPack, bool kBasic>
__global__ void __launch_bounds__(cuda::kThreads, kBasic ? kBlocksByRow : 1)
    update_whole_rows_kernel(const __grid_constant__ cuda::RowTables tables,
                             const __grid_constant__ cuda::RowRuns runs,
                             const __grid_constant__ OptimizerSpec spec, const StepParams* params,
                             const float* factor) {
  using Elements = cuda::Pack<float, kPack>;
  __shared__ PreparedUpdate shared;
  __shared__ cuda::RowTile tile;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * cuda::kThreads;
  const int starts = cuda::load_tile(tile, tables, runs, first);
  cuda::load_update(shared, spec, params, factor);
  const PreparedUpdate u = shared;
  const Lanes lanes(runs.lanes);
  const std::int64_t width = tables.width, at_once = runs.lanes * kPack;
  for (int k = 1; k <= kRowsAhead; ++k)
    prefetch_row<V, kPack, true>(tile, tables, lanes, lanes.group + k * lanes.groups, starts);
  for (int s = lanes.group; s < starts; s += lanes.groups) {
    prefetch_row<V, kPack, true>(tile, tables, lanes, s + (kRowsAhead + 1) * lanes.groups, starts);
    const int at = tile.starts[s];
    const std::int64_t row = tile.row(at);
    const cuda::RowTable& t = tables.at[tables.index_of(row, tile.first_table, tile.last_table + 1)];
    if (row - t.first_row >= t.rows) continue;  // an index out of range
    float* const weights = t.weights + (row - t.first_row) * width;
    float& slot = t.slots[0][row - t.first_row];
    float accumulator = slot;
    Elements sum{}, w{};
    float squares = 0;
    for (std::int64_t column = lanes.column_lane * kPack; column < width; column += at_once) {
      w = cuda::load_once<kPack>(weights + column);
      sum = cuda::sum_of_run<V, kPack>(tile, at, t, runs, first + at, width, column);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        float g = sum.at[i] * u.grad_scale;
        if constexpr (!kBasic) g = optim::surrounded(u, w.at[i], g).g;
        squares += g * g;
      }
    }
    for (int other = 1; other < runs.lanes; other *= 2)
      squares += __shfl_xor_sync(lanes.mask, squares, other);
    accumulator += squares / static_cast<float>(width);
    if (lanes.column_lane == 0) slot = accumulator;
    const float divisor = std::sqrt(accumulator) + u.adagrad_epsilon;
    for (std::int64_t column = lanes.column_lane * kPack; column < width; column += at_once) {
      if (width > at_once) {
        w = cuda::load_once<kPack>(weights + column);
        sum = cuda::sum_of_run<V, kPack>(tile, at, t, runs, first + at, width, column);
      }
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        optim::Prepared<float> now{w.at[i], sum.at[i] * u.grad_scale};
        if constexpr (!kBasic)
          now = optim::surrounded(u, now.w, now.g);
        else if (u.decay != 0)
          now.w -= u.decay * now.w;
        w.at[i] = now.w - u.learning_rate * now.g / divisor;
      }
      cuda::store_once<kPack>(weights + column, w);
    }
  }
}

const OutputInfo& info(std::span<const OutputInfo> inputs, int input) {
  return inputs[static_cast<std::size_t>(input)];
}

/// The tables as their indices name them, with inputs of one gradient after the other.
std::vector<cuda::IndexedTable> indexed_tables(std::span<const OutputInfo> inputs, const UpdateInputs& in,
                                               bool skip_negative = false) {
  std::vector<cuda::IndexedTable> tables;
  for (int v = 0; v < in.variables; ++v) {
    tables.push_back({info(inputs, in.handle(v)).shape[0], in.indices(inputs, v),
                      info(inputs, in.gradient(v)).dtype == DType::Int64, skip_negative});
  }
  return tables;
}

/// Up to kMostTables tables of one width and one type of values, updated together.
class Batch {
 public:
  /// `base` is where the first table begins, and then where the one after the last does.
  Batch(const PrepareContext& c, const UpdateInputs& in, int first, int count, EntryBase& base)
      : in_(in), first_(first), first_entry_(base.entry) {
    for (int v = first; v < first + count; ++v) {
      const Shape& shape = info(c.inputs, in.handle(v)).shape;
      const std::int64_t indices = in.indices(c.inputs, v);
      tables_.push_back({shape[0], in.stride_of_values(c.inputs, v), base});
      if (shape[0] != 0) width_ = shape.elements() / shape[0];
      value_type_ = info(c.inputs, in.values(v)).dtype;
      base.pass(shape[0], indices);
    }
    entries_ = base.entry - first_entry_;
  }

  /// For the partial sums.
  std::size_t scratch_bytes() const {
    return static_cast<std::size_t>((entries_ + cuda::kShort - 1) / cuda::kShort * 2 * width_) *
           sizeof(float);
  }

  /// `entries` are those of the op; `factor` may be null.
  void run(const KernelArgs& a, const std::uint64_t* entries, const float* factor, void* scratch) const {
    if (entries_ == 0 || width_ == 0) return;
    cuda::RowTables tables;
    tables.width = width_;
    bool packed = width_ % 4 == 0;
    for (int i = 0; i < static_cast<int>(tables_.size()); ++i) packed = add(tables, a, i) && packed;
    entries += first_entry_;
    with_values([&]<class V>() {
      if (packed)
        update<V, 4>(a, tables, entries, factor, static_cast<float*>(scratch));
      else
        update<V, 1>(a, tables, entries, factor, static_cast<float*>(scratch));
    });
  }

 private:
  struct Table {
    std::int64_t rows, stride;
    EntryBase base;
  };

  /// Whether all of the table is aligned to packs of 16 bytes.
  bool add(cuda::RowTables& tables, const KernelArgs& a, int i) const {
    const int v = first_ + i;
    const Table& table = tables_[static_cast<std::size_t>(i)];
    cuda::RowTable& t = tables.at[tables.count++];
    t = {.weights = a.var<float>(in_.handle(v)),
         .slots = {},
         .values = static_cast<const char*>(a.inputs[in_.values(v)]) +
                   in_.offset(v) * static_cast<std::int64_t>(dtype_size(value_type_)),
         .bags = in_.has_bags ? a.in<std::int32_t>(in_.bags(v)) : nullptr,
         .value_weights = in_.weighted ? a.in<float>(in_.weights(v)) : nullptr,
         .rows = static_cast<std::int32_t>(table.rows),
         .first_row = static_cast<std::int32_t>(table.base.row),
         .first_entry = static_cast<std::int32_t>(table.base.entry),
         .stride = static_cast<std::int32_t>(table.stride),
         .by_hot = cuda::Divider(in_.hot(v))};
    for (int s = 0; s < in_.slots; ++s) t.slots[s] = a.var<float>(in_.slot(v, s));
    return cuda::is_aligned16(t.weights) && cuda::is_aligned16(t.values) && table.stride % 4 == 0 &&
           (in_.spec.row_wise || (cuda::is_aligned16(t.slots[0]) && cuda::is_aligned16(t.slots[1]) &&
                                  cuda::is_aligned16(t.slots[2])));
  }

  /// Calls f.operator()<V>() for the type of the values.
  template <class F>
  void with_values(const F& f) const {
    if (value_type_ == DType::Float16) return f.template operator()<Float16>();
    if (value_type_ == DType::BFloat16) return f.template operator()<BFloat16>();
    f.template operator()<float>();
  }

  template <class V, int kPack>
  void update(const KernelArgs& a, const cuda::RowTables& tables, const std::uint64_t* entries,
              const float* factor, float* partials) const {
    const cuda::RowRuns runs = cuda::runs_of(entries, partials, entries_, width_, kPack);
    cuda::sum_long_runs<V, kPack>(a.stream, tables, runs);
    const bool basic = is_basic(in_.spec);
    const auto rows_kernel = basic ? update_rows_kernel<V, kPack, true> : update_rows_kernel<V, kPack, false>;
    const auto whole_rows_kernel =
        basic ? update_whole_rows_kernel<V, kPack, true> : update_whole_rows_kernel<V, kPack, false>;
    const std::int64_t blocks = (runs.n + cuda::kThreads - 1) / cuda::kThreads;
    cuda::launch(in_.spec.row_wise ? whole_rows_kernel : rows_kernel, static_cast<unsigned>(blocks),
                 cuda::kThreads, 0, a.stream, tables, runs, in_.spec, a.params, factor);
  }

  UpdateInputs in_;
  int first_;
  std::int64_t first_entry_, entries_ = 0;
  std::int64_t width_ = 0;
  DType value_type_ = DType::Float32;
  std::vector<Table> tables_;
};

/// All tables of an op.
class GroupedUpdate {
 public:
  GroupedUpdate(const PrepareContext& c, const UpdateInputs& in) {
    const auto width = [&](int v) {
      const Shape& shape = info(c.inputs, in.handle(v)).shape;
      return shape[0] == 0 ? 0 : shape.elements() / shape[0];
    };
    const auto values = [&](int v) { return info(c.inputs, in.values(v)).dtype; };
    EntryBase base;
    for (int v = 0; v < in.variables;) {
      int count = 1;
      while (count < cuda::kMostTables && v + count < in.variables && width(v + count) == width(v) &&
             values(v + count) == values(v))
        ++count;
      batches_.emplace_back(c, in, v, count, base);
      scratch_bytes_ = std::max(scratch_bytes_, batches_.back().scratch_bytes());
      v += count;
    }
  }

  std::size_t scratch_bytes() const { return scratch_bytes_; }
  void run(const KernelArgs& a, const std::uint64_t* entries, const float* factor, void* scratch) const {
    for (const Batch& batch : batches_) batch.run(a, entries, factor, scratch);
  }

 private:
  std::vector<Batch> batches_;
  std::size_t scratch_bytes_ = 0;
};

PreparedKernel prepare(const PrepareContext& c) {
  const UpdateInputs in = prepared_update_inputs(c, 2);
  cuda::RowGrouping grouping(indexed_tables(c.inputs, in, c.attr(kSkipNegative, false)));
  GroupedUpdate update(c, in);
  const std::size_t entries_bytes =
      (static_cast<std::size_t>(grouping.entries()) * sizeof(std::uint64_t) + 255) / 256 * 256;
  PreparedKernel kernel;
  kernel.scratch_bytes = entries_bytes + std::max(grouping.scratch_bytes(), update.scratch_bytes());
  kernel.run = [=, grouping = std::move(grouping), update = std::move(update)](const KernelArgs& a) {
    auto* const entries = static_cast<std::uint64_t*>(a.scratch);
    void* const rest = static_cast<char*>(a.scratch) + entries_bytes;
    grouping.run(a, in.gradient(0), in.stride(), rest, entries);
    update.run(a, entries, in.factor_of(a), rest);
  };
  return kernel;
}

PreparedKernel prepare_grouped(const PrepareContext& c) {
  const UpdateInputs in = prepared_update_inputs(c, 1);
  GroupedUpdate update(c, in);
  PreparedKernel kernel;
  kernel.scratch_bytes = update.scratch_bytes();
  kernel.run = [in, update = std::move(update)](const KernelArgs& a) {
    update.run(a, a.in<std::uint64_t>(in.entries()), in.factor_of(a, true), a.scratch);
  };
  return kernel;
}

/// Sparse updates of `gradient_inputs` a variable, 1 where the rows are grouped.
template <int kGradientInputs>
bool supports(const Node& node, std::span<const OutputInfo> inputs) {
  const UpdateInputs in = update_inputs(node, inputs, kGradientInputs);
  for (int i = 0; i < in.entries(); ++i)
    if (inputs[static_cast<std::size_t>(i)].shape.rank() == 0) return false;
  return updates_float32(node, inputs, kGradientInputs) && cuda::fits_entries(indexed_tables(inputs, in));
}

}  // namespace

void register_sparse_apply_optimizer_cuda(OpRegistry& registry) {
  for (const char* op : {"braid.SparseApplyOptimizer", "braid.SparseApplyOptimizerMany"})
    registry.add_cuda(op, prepare, supports<2>);
  registry.add_cuda("braid.SparseApplyGrouped", prepare_grouped, supports<1>);
  cuda_takes_halves(
      {"braid.SparseApplyOptimizer", "braid.SparseApplyOptimizerMany", "braid.SparseApplyGrouped"});
}

}  // namespace braid
