// CUDA kernels of braid.SparseApplyOptimizer, braid.SparseApplyOptimizerMany and braid.SparseApplyGrouped.
// The first two group the rows of all tables (common/cuda/row_grouping.h), the third gets them grouped. A few
// lanes then take each row that is named: they sum its gradients in the order of their positions and update
// the row; nothing else of a table is touched. A row that is named often would keep its lanes busy for long,
// so the gradients of a run of more than kShort entries are first summed by warps, in chunks counted from the
// run's first entry: the sum depends on the run's gradients alone, not on what else is updated.
#include <algorithm>
#include <bit>
#include <vector>

#include "engine/ops/common/half.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/row_entries.h"
#include "engine/ops/optimizer/sorted_rows.cuh"
#include "engine/ops/optimizer/update_inputs.h"

namespace braid {
namespace {

constexpr int kWarp = 32;
constexpr int kShort = kWarp;  // entries; windows of so many hold at most two chunks' begins
constexpr int kAhead = 4;      // loads in flight
constexpr std::uint64_t kNoEntry = ~std::uint64_t{0};

struct Walk {
  const std::uint64_t* entries;  // [n] sorted
  float* partials;               // [windows, 2, width]
  std::int64_t n;
  std::int64_t chunk;  // entries, at least kShort
  int lanes;           // that share a row: a power of two

  __device__ std::uint64_t entry(std::int64_t e) const { return e >= 0 && e < n ? entries[e] : kNoEntry; }
  /// Of that entry, or one that no table has.
  __device__ std::int64_t row(std::int64_t e) const { return cuda::row_of(entry(e)); }
  /// Where the chunk that begins at e has its sum. A window of kShort entries holds at most one begin of a
  /// long run and one that is not its run's first.
  __device__ float* partial(std::int64_t e, bool is_first, std::int64_t width) const {
    return partials + (e / kShort * 2 + (is_first ? 1 : 0)) * width;
  }
  /// The first entry of the row's run, which is not behind `high`.
  __device__ std::int64_t first_of(std::int64_t row, std::int64_t high) const {
    std::int64_t low = 0;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (cuda::row_of(entries[middle]) < row)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
};

template <int kPack>
__device__ void add(cuda::Pack<float, kPack>& sum, const cuda::Pack<float, kPack>& x) {
#pragma unroll
  for (int i = 0; i < kPack; ++i) sum.at[i] += x.at[i];
}

/// sum += load(e) for e = begin, begin + step, ... below `end`, while the entries are of the row.
template <int kPack, class Load>
__device__ void add_run(const Walk& walk, std::int64_t row, std::int64_t begin, std::int64_t end,
                        std::int64_t step, const Load& load, cuda::Pack<float, kPack>& sum) {
  for (std::int64_t e = begin; e < end; e += kAhead * step) {
    std::uint64_t entries[kAhead];
    cuda::Pack<float, kPack> values[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const std::int64_t at = e + k * step;
      entries[k] = at < end ? walk.entry(at) : kNoEntry;
    }
    if (cuda::row_of(entries[0]) != row) return;
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (cuda::row_of(entries[k]) == row) values[k] = load(entries[k], e + k * step);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (cuda::row_of(entries[k]) != row) return;
      add(sum, values[k]);
    }
  }
}

/// The gradients' elements from `column` on. V: the type that they have in memory.
template <class V, int kPack>
struct LoadValues {
  const cuda::RowTable& table;
  std::int64_t width, column;
  __device__ cuda::Pack<float, kPack> operator()(std::uint64_t entry, std::int64_t) const {
    const std::int64_t position = cuda::position_of(entry) - table.first_entry;
    const auto stored = *reinterpret_cast<const cuda::Pack<V, kPack>*>(
        static_cast<const V*>(table.values) + table.value_of(position) * width + column);
    cuda::Pack<float, kPack> values;
#pragma unroll
    for (int i = 0; i < kPack; ++i) values.at[i] = static_cast<float>(stored.at[i]);
    if (table.value_weights) {
      const float weight = table.value_weights[position];
#pragma unroll
      for (int i = 0; i < kPack; ++i) values.at[i] *= weight;
    }
    return values;
  }
};

/// A warp looks at a window of kShort entries and sums the chunks of long runs that begin there.
template <class V, int kPack>
__global__ void sum_chunks_kernel(const __grid_constant__ cuda::RowTables tables,
                                  const __grid_constant__ Walk walk) {
  using Elements = cuda::Pack<float, kPack>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int column_lane = lane & (walk.lanes - 1), group = lane / walk.lanes, groups = kWarp / walk.lanes;
  const std::int64_t windows = (walk.n + kShort - 1) / kShort;
  for (std::int64_t w = cuda::grid_index() / kWarp; w < windows; w += cuda::grid_size() / kWarp) {
    const std::int64_t e = w * kShort + lane;
    // All loads before the first use.
    const std::int64_t own = walk.row(e), before = walk.row(e - 1), ahead = walk.row(e + kShort),
                       behind = walk.row(e - walk.chunk);
    const bool is_first = e < walk.n && ahead == own && before != own;
    bool is_later = false;
    if (e < walk.n && behind == own) is_later = (e - walk.first_of(own, e - walk.chunk)) % walk.chunk == 0;
    const unsigned firsts = __ballot_sync(0xffffffffU, is_first);
    for (unsigned begins = __ballot_sync(0xffffffffU, is_first || is_later); begins != 0;
         begins &= begins - 1) {
      const int at = __ffs(static_cast<int>(begins)) - 1;
      const std::int64_t begin = w * kShort + at;
      const std::int64_t row = cuda::row_of(walk.entries[begin]);
      const cuda::RowTable& t = tables.of_row(row);
      if (row - t.first_row >= t.rows) continue;  // no row of the table
      float* partial = walk.partial(begin, (firsts >> at & 1U) != 0, tables.width);
      for (std::int64_t piece = 0; piece < tables.width; piece += walk.lanes * kPack) {
        const std::int64_t column = piece + column_lane * kPack;
        Elements sum{};
        if (column < tables.width)
          add_run<kPack>(walk, row, begin + group, begin + walk.chunk, groups,
                         LoadValues<V, kPack>{t, tables.width, column}, sum);
        for (int other = walk.lanes; other < kWarp; other *= 2) {
#pragma unroll
          for (int i = 0; i < kPack; ++i) sum.at[i] += __shfl_xor_sync(0xffffffffU, sum.at[i], other);
        }
        if (group == 0 && column < tables.width) *reinterpret_cast<Elements*>(partial + column) = sum;
      }
    }
  }
}

/// The sum of the gradients of the row whose run begins with entry e.
template <class V, int kPack>
__device__ cuda::Pack<float, kPack> sum_of_run(const cuda::RowTable& t, const Walk& walk, std::int64_t width,
                                               std::int64_t e, std::uint64_t entry, std::int64_t next,
                                               std::int64_t ahead, std::int64_t column) {
  using Elements = cuda::Pack<float, kPack>;
  const std::int64_t row = cuda::row_of(entry);
  Elements sum;
  if (ahead == row) {
    const auto load = [&](std::uint64_t, std::int64_t begin) {
      return *reinterpret_cast<const Elements*>(walk.partial(begin, false, width) + column);
    };
    sum = *reinterpret_cast<const Elements*>(walk.partial(e, true, width) + column);
    add_run<kPack>(walk, row, e + walk.chunk, walk.n, walk.chunk, load, sum);
  } else {
    const LoadValues<V, kPack> load{t, width, column};
    sum = load(entry, e);
    if (next == row) add_run<kPack>(walk, row, e + 1, e + kShort, 1, load, sum);
  }
  return sum;
}

/// The lanes of an entry that is the first of its row's run update the row.
template <class V, int kPack, bool kBasic>
__global__ void __launch_bounds__(cuda::kThreads)
    update_rows_kernel(const __grid_constant__ cuda::RowTables tables, const __grid_constant__ Walk walk,
                       const __grid_constant__ OptimizerSpec spec, const StepParams* params) {
  using Elements = cuda::Pack<float, kPack>;
  __shared__ PreparedUpdate shared;
  cuda::load_update(shared, spec, params);
  const PreparedUpdate u = shared;
  const int column_lane = static_cast<int>(threadIdx.x) & (walk.lanes - 1);
  const std::int64_t step = cuda::grid_size() / walk.lanes;
  for (std::int64_t e = cuda::grid_index() / walk.lanes; e < walk.n; e += step) {
    // All loads before the first use: a row that is named once then waits twice, for these and for its
    // elements.
    const std::uint64_t entry = walk.entries[e];
    const std::int64_t before = walk.row(e - 1), next = walk.row(e + 1), ahead = walk.row(e + kShort);
    const std::int64_t row = cuda::row_of(entry);
    if (before == row) continue;
    const cuda::RowTable& t = tables.of_row(row);
    if (row - t.first_row >= t.rows) continue;  // an index out of range
    float* const slots[cuda::kSlots] = {t.slots[0], t.slots[1], t.slots[2]};
    for (std::int64_t column = column_lane * kPack; column < tables.width; column += walk.lanes * kPack) {
      const Elements sum = sum_of_run<V, kPack>(t, walk, tables.width, e, entry, next, ahead, column);
      const std::int64_t at = (row - t.first_row) * tables.width + column;
      cuda::with_formula<kBasic>(u, [&]<class Formula>() {
        cuda::update_pack<Formula, kPack, kBasic>(u, sum, t.weights, slots, at);
      });
    }
  }
}

/// The same for row-wise Adagrad. Rows of more columns than the lanes take at once are summed twice.
template <class V, int kPack, bool kBasic>
__global__ void __launch_bounds__(cuda::kThreads)
    update_whole_rows_kernel(const __grid_constant__ cuda::RowTables tables,
                             const __grid_constant__ Walk walk, const __grid_constant__ OptimizerSpec spec,
                             const StepParams* params) {
  using Elements = cuda::Pack<float, kPack>;
  __shared__ PreparedUpdate shared;
  cuda::load_update(shared, spec, params);
  const PreparedUpdate u = shared;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int column_lane = lane & (walk.lanes - 1);
  const unsigned lanes = walk.lanes == kWarp ? 0xffffffffU : ((1U << walk.lanes) - 1) << (lane - column_lane);
  const std::int64_t width = tables.width, at_once = walk.lanes * kPack;
  const std::int64_t step = cuda::grid_size() / walk.lanes;
  for (std::int64_t e = cuda::grid_index() / walk.lanes; e < walk.n; e += step) {
    const std::uint64_t entry = walk.entries[e];
    const std::int64_t before = walk.row(e - 1), next = walk.row(e + 1), ahead = walk.row(e + kShort);
    const std::int64_t row = cuda::row_of(entry);
    if (before == row) continue;
    const cuda::RowTable& t = tables.of_row(row);
    if (row - t.first_row >= t.rows) continue;  // an index out of range
    float* const weights = t.weights + (row - t.first_row) * width;
    float& slot = t.slots[0][row - t.first_row];
    float accumulator = slot;
    Elements sum{}, w{};
    float squares = 0;
    for (std::int64_t column = column_lane * kPack; column < width; column += at_once) {
      w = *reinterpret_cast<const Elements*>(weights + column);
      sum = sum_of_run<V, kPack>(t, walk, width, e, entry, next, ahead, column);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        float g = sum.at[i] * u.grad_scale;
        if constexpr (!kBasic) g = optim::surrounded(u, w.at[i], g).g;
        squares += g * g;
      }
    }
    for (int other = 1; other < walk.lanes; other *= 2) squares += __shfl_xor_sync(lanes, squares, other);
    accumulator += squares / static_cast<float>(width);
    if (column_lane == 0) slot = accumulator;
    const float divisor = std::sqrt(accumulator) + u.adagrad_epsilon;
    for (std::int64_t column = column_lane * kPack; column < width; column += at_once) {
      if (width > at_once) {
        w = *reinterpret_cast<const Elements*>(weights + column);
        sum = sum_of_run<V, kPack>(t, walk, width, e, entry, next, ahead, column);
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
      *reinterpret_cast<Elements*>(weights + column) = w;
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
      tables_.push_back({shape[0], base});
      if (shape[0] != 0) width_ = shape.elements() / shape[0];
      value_type_ = info(c.inputs, in.values(v)).dtype;
      base.pass(shape[0], indices);
    }
    entries_ = base.entry - first_entry_;
  }

  /// For the partial sums.
  std::size_t scratch_bytes() const {
    return static_cast<std::size_t>((entries_ + kShort - 1) / kShort * 2 * width_) * sizeof(float);
  }

  /// `entries` are those of the op.
  void run(const KernelArgs& a, const std::uint64_t* entries, void* scratch) const {
    if (entries_ == 0 || width_ == 0) return;
    cuda::RowTables tables;
    tables.width = width_;
    bool packed = width_ % 4 == 0;
    for (int i = 0; i < static_cast<int>(tables_.size()); ++i) packed = add(tables, a, i) && packed;
    entries += first_entry_;
    with_values([&]<class V>() {
      if (packed)
        update<V, 4>(a, tables, entries, static_cast<float*>(scratch));
      else
        update<V, 1>(a, tables, entries, static_cast<float*>(scratch));
    });
  }

 private:
  struct Table {
    std::int64_t rows;
    EntryBase base;
  };

  /// Whether all of the table is aligned to packs of 16 bytes.
  bool add(cuda::RowTables& tables, const KernelArgs& a, int i) const {
    const int v = first_ + i;
    const Table& table = tables_[static_cast<std::size_t>(i)];
    cuda::RowTable& t = tables.at[tables.count++];
    t = {.weights = a.var<float>(in_.handle(v)),
         .slots = {},
         .values = a.inputs[in_.values(v)],
         .bags = in_.has_bags ? a.in<std::int32_t>(in_.bags(v)) : nullptr,
         .value_weights = in_.weighted ? a.in<float>(in_.weights(v)) : nullptr,
         .rows = static_cast<std::int32_t>(table.rows),
         .first_row = static_cast<std::int32_t>(table.base.row),
         .first_entry = static_cast<std::int32_t>(table.base.entry),
         .by_hot = cuda::Divider(in_.hot(v))};
    for (int s = 0; s < in_.slots; ++s) t.slots[s] = a.var<float>(in_.slot(v, s));
    return cuda::is_aligned16(t.weights) && cuda::is_aligned16(t.values) &&
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
              float* partials) const {
    const auto packs = static_cast<std::uint64_t>((width_ + kPack - 1) / kPack);
    Walk walk{.entries = entries,
              .partials = partials,
              .n = entries_,
              .chunk = 0,
              .lanes = static_cast<int>(std::min<std::uint64_t>(std::bit_ceil(packs), kWarp))};
    walk.chunk = std::max(2 * kShort, kWarp * (kWarp / walk.lanes));
    if (walk.n > kShort)
      cuda::launch(sum_chunks_kernel<V, kPack>, cuda::blocks_for(walk.n), cuda::kThreads, 0, a.stream, tables,
                   walk);
    const bool basic = is_basic(in_.spec);
    const auto rows_kernel = basic ? update_rows_kernel<V, kPack, true> : update_rows_kernel<V, kPack, false>;
    const auto whole_rows_kernel =
        basic ? update_whole_rows_kernel<V, kPack, true> : update_whole_rows_kernel<V, kPack, false>;
    cuda::launch(in_.spec.row_wise ? whole_rows_kernel : rows_kernel, cuda::blocks_for(walk.n * walk.lanes),
                 cuda::kThreads, 0, a.stream, tables, walk, in_.spec, a.params);
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
  void run(const KernelArgs& a, const std::uint64_t* entries, void* scratch) const {
    for (const Batch& batch : batches_) batch.run(a, entries, scratch);
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
    update.run(a, entries, rest);
  };
  return kernel;
}

PreparedKernel prepare_grouped(const PrepareContext& c) {
  const UpdateInputs in = prepared_update_inputs(c, 1);
  GroupedUpdate update(c, in);
  PreparedKernel kernel;
  kernel.scratch_bytes = update.scratch_bytes();
  kernel.run = [entries = in.variables * in.stride(), update = std::move(update)](const KernelArgs& a) {
    update.run(a, a.in<std::uint64_t>(entries), a.scratch);
  };
  return kernel;
}

/// Sparse updates of `gradient_inputs` a variable, 1 where the rows are grouped.
template <int kGradientInputs>
bool supports(const Node& node, std::span<const OutputInfo> inputs) {
  for (const OutputInfo& input : inputs)
    if (input.shape.rank() == 0) return false;
  return updates_float32(node, inputs, kGradientInputs) &&
         cuda::fits_entries(indexed_tables(inputs, update_inputs(node, inputs, kGradientInputs)));
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
