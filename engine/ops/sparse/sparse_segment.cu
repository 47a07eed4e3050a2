// CUDA kernels of the sparse segment ops (common/cuda/row_groups.h). Forward, the entries are the segments,
// in order as they are, and an update is row indices[k] of the data. Backward, the entries are the indices,
// and an update is row segment_ids[k] of dy times the segment's scale.
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/row_groups.h"
#include "engine/ops/common/dispatch.h"

namespace braid {
namespace {

using cuda::RowWrite;

/// Entries of `targets` whose value row `sources[k]` exists; what is out of range is reported and left out.
/// Segment ids are the targets, or the sources where `back`; one that is above the next is reported.
template <bool kBack, class I, class S>
__global__ void sparse_entries_kernel(const I* targets, const S* sources, std::uint64_t* entries,
                                      std::int64_t n, std::int64_t rows, std::int64_t source_rows,
                                      StepStatus* status, int op) {
  for (std::int64_t k = cuda::grid_index(); k < n; k += cuda::grid_size()) {
    auto row = static_cast<std::int64_t>(targets[k]);
    const auto source = static_cast<std::int64_t>(sources[k]);
    if (k + 1 < n) {
      const std::int64_t id = kBack ? source : row;
      const auto next = static_cast<std::int64_t>(kBack ? sources[k + 1] : targets[k + 1]);
      if (next >= 0 && id > next) cuda::report(status, op, StatusCode::IndexOutOfRange, id, next + 1);
    }
    if (row < 0 || row >= rows) {
      cuda::report(status, op, StatusCode::IndexOutOfRange, row, rows);
      row = rows;
    } else if (source < 0 || source >= source_rows) {
      cuda::report(status, op, StatusCode::IndexOutOfRange, source, source_rows);
      row = rows;
    }
    entries[k] = static_cast<std::uint64_t>(row) << 32 | static_cast<std::uint64_t>(k);
  }
}

/// scale[s] = 1 / n or 1 / sqrt(n) of the n ids that are s; the ids never fall.
template <class T, class S>
__global__ void segment_scale_kernel(const S* ids, std::int64_t n, T* scale, std::int64_t segments,
                                     bool root) {
  for (std::int64_t s = cuda::grid_index(); s < segments; s += cuda::grid_size()) {
    std::int64_t bounds[2];  // the first id that is not below s, and the first above
    for (int above = 0; above < 2; ++above) {
      std::int64_t low = 0, high = n;
      while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        if (static_cast<std::int64_t>(ids[middle]) < s + above)
          low = middle + 1;
        else
          high = middle;
      }
      bounds[above] = low;
    }
    const auto count = static_cast<double>(bounds[1] - bounds[0]);
    scale[s] = static_cast<T>(1 / (root ? sqrt(count) : count));
  }
}

struct Row {
  const char* name;
  RowWrite write;  // of the forward op: Set, Mean or RootMean
};

std::int64_t width_of(const Shape& rows) {
  std::int64_t width = 1;
  for (int i = 1; i < rows.rank(); ++i) width *= rows[i];
  return width;
}

PreparedKernel prepare(const PrepareContext& c, const Row& row) {
  const std::int64_t n = c.inputs[1].shape[0], data_rows = c.inputs[0].shape[0];
  const std::int64_t segments = c.outputs[0].shape[0], width = width_of(c.outputs[0].shape);
  const auto bytes =
      static_cast<std::uint64_t>(c.outputs[0].shape.elements()) * dtype_size(c.outputs[0].dtype);
  const cuda::RowUpdate update(
      c, {.dtype = c.outputs[0].dtype, .updates = n, .rows = segments, .width = width, .write = row.write});
  return with_index(row.name, c.inputs[1].dtype, [&]<class I>() {
    return with_index(row.name, c.inputs[2].dtype, [&]<class S>() {
      PreparedKernel kernel;
      kernel.scratch_bytes = update.scratch_bytes();
      kernel.run = [=, device = c.accelerator](const KernelArgs& a) {
        if (bytes != 0) device->fill_zero(a.outputs[0], bytes, a.stream);
        if (n == 0) return;
        cuda::launch(sparse_entries_kernel<false, S, I>, cuda::blocks_for(n), cuda::kThreads, 0, a.stream,
                     a.in<S>(2), a.in<I>(1), update.entries(a.scratch), n, segments, data_rows, a.status,
                     a.op);
        update.apply(a.scratch, a.stream,
                     {.data = a.inputs[0],
                      .row_stride = width,
                      .column_stride = 1,
                      .row_of = a.inputs[1],
                      .row_type = dtype_of<I>},
                     a.outputs[0]);
      };
      return kernel;
    });
  });
}

PreparedKernel prepare_grad(const PrepareContext& c, const Row& row) {
  const std::int64_t n = c.inputs[1].shape[0], segments = c.inputs[0].shape[0];
  const std::int64_t rows = c.outputs[0].shape[0], width = width_of(c.outputs[0].shape);
  const auto bytes =
      static_cast<std::uint64_t>(c.outputs[0].shape.elements()) * dtype_size(c.outputs[0].dtype);
  const bool scaled = row.write != RowWrite::Set, root = row.write == RowWrite::RootMean;
  const cuda::RowUpdate update(c, {.dtype = c.outputs[0].dtype, .updates = n, .rows = rows, .width = width});
  return with_number(row.name, c.outputs[0].dtype, [&]<class T>() {
    return with_index(row.name, c.inputs[1].dtype, [&]<class I>() {
      return with_index(row.name, c.inputs[2].dtype, [&]<class S>() {
        PreparedKernel kernel;
        kernel.scratch_bytes = update.scratch_bytes() + static_cast<std::size_t>(segments) * sizeof(T);
        kernel.run = [=, device = c.accelerator](const KernelArgs& a) {
          if (bytes != 0) device->fill_zero(a.outputs[0], bytes, a.stream);
          if (n == 0) return;
          auto* scale = reinterpret_cast<T*>(static_cast<char*>(a.scratch) + update.scratch_bytes());
          if (scaled && segments != 0)
            cuda::launch(segment_scale_kernel<T, S>, cuda::blocks_for(segments), cuda::kThreads, 0, a.stream,
                         a.in<S>(2), n, scale, segments, root);
          cuda::launch(sparse_entries_kernel<true, I, S>, cuda::blocks_for(n), cuda::kThreads, 0, a.stream,
                       a.in<I>(1), a.in<S>(2), update.entries(a.scratch), n, rows, segments, a.status, a.op);
          update.apply(a.scratch, a.stream,
                       {.data = a.inputs[0],
                        .row_stride = width,
                        .column_stride = 1,
                        .row_of = a.inputs[2],
                        .row_type = dtype_of<S>,
                        .scale = scaled ? scale : nullptr},
                       a.outputs[0]);
        };
        return kernel;
      });
    });
  });
}

constexpr Row kRows[] = {
    {"SparseSegmentSum", RowWrite::Set},
    {"SparseSegmentMean", RowWrite::Mean},
    {"SparseSegmentSqrtN", RowWrite::RootMean},
};

}  // namespace

void register_sparse_segment_cuda(OpRegistry& registry) {
  const auto supports = [](const Node&, std::span<const OutputInfo> inputs) {
    return cuda::is_row_type(inputs[0].dtype);
  };
  for (const Row& row : kRows) {
    const std::string name = row.name;
    for (const std::string& form : {name, name + "WithNumSegments"})
      registry.add_cuda(
          form, [&row](const PrepareContext& c) { return prepare(c, row); }, supports);
    registry.add_cuda(
        name + "Grad", [&row](const PrepareContext& c) { return prepare_grad(c, row); }, supports);
  }
}

}  // namespace braid
