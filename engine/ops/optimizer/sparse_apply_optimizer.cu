// CUDA kernels of braid.SparseApplyOptimizer, braid.SparseApplyOptimizerMany and braid.SparseApplyGrouped.
// The first two group the rows of all tables (common/cuda/row_grouping.h), the third gets them grouped. A few
// lanes then take each row that is named: they sum its gradients (row_runs.cuh) and update the row
// (update_rows.cuh); nothing else of a table is touched.
#include <algorithm>
#include <vector>

#include "engine/ops/common/halves.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/row_entries.h"
#include "engine/ops/optimizer/update_inputs.h"
#include "engine/ops/optimizer/update_rows.cuh"

namespace braid {
namespace {

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
      // One load of a half's values, two of weights.
      if constexpr (sizeof(V) == 2)
        if (packed && has_wide_packs())
          return update<V, 8>(a, tables, entries, factor, static_cast<float*>(scratch));
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

  bool has_wide_packs() const {
    return width_ % 8 == 0 && std::ranges::all_of(tables_, [](const Table& t) { return t.stride % 8 == 0; });
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
    const auto rows_kernel =
        basic ? cuda::update_rows_kernel<V, kPack, true> : cuda::update_rows_kernel<V, kPack, false>;
    const auto whole_rows_kernel = basic ? cuda::update_whole_rows_kernel<V, kPack, true>
                                         : cuda::update_whole_rows_kernel<V, kPack, false>;
    const std::int64_t blocks = (runs.n + cuda::kThreads - 1) / cuda::kThreads;
    const int lanes =
        cuda::lanes_of_row(width_, kPack,
                           in_.spec.row_wise ? cuda::kPiecesOf<kPack, cuda::kElementsByRow>
                                             : cuda::kPiecesOf<kPack, cuda::kElementsByElement>);
    cuda::launch(in_.spec.row_wise ? whole_rows_kernel : rows_kernel, static_cast<unsigned>(blocks),
                 cuda::kThreads, 0, a.stream, tables, runs, in_.spec, a.params, factor, lanes);
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
