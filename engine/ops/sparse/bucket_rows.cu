// CUDA kernels of braid.Unbucket and braid.SumBuckets. Rows are copied in units of up to 16 bytes, a thread a
// unit. Sums take a thread for each column of a place: it finds the place's first entry and adds the values
// of all of them in the order of their positions, so nothing depends on how blocks run. Of an id that is
// there often, many values are loaded before the first is added.
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/unit.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/row_entries.h"

namespace braid {
namespace {

/// rows [ranks, places, width] -> out [n, ranks, width]; widths in units.
struct RowBlocks {
  std::int64_t ranks, places, n, width;
};

template <class Unit, class I>
__global__ void unbucket_kernel(const Unit* rows, const I* at, Unit* out, RowBlocks s, StepStatus* status,
                                int op) {
  const std::int64_t of_row = s.ranks * s.width;
  for (std::int64_t i = cuda::grid_index(); i < s.n * of_row; i += cuda::grid_size()) {
    const std::int64_t k = i / of_row, column = i - k * of_row, rank = column / s.width;
    const auto place = static_cast<std::int64_t>(at[k]);
    if (place >= 0 && place < s.places) {
      out[i] = rows[(rank * s.places + place) * s.width + (column - rank * s.width)];
    } else {
      out[i] = Unit{};
      cuda::report(status, op, StatusCode::IndexOutOfRange, place, s.places);
    }
  }
}

PreparedKernel prepare_unbucket(const PrepareContext& c) {
  const Shape& rows = c.inputs[0].shape;
  const bool columns = c.node.attrs.get<std::string>("blocks", "own") == "columns";
  RowBlocks s{.ranks = columns ? rows[0] : 1,
              .places = columns ? rows[1] : rows[0] * rows[1],
              .n = c.inputs[1].shape.elements(),
              .width = 0};
  const auto row_bytes = rows[2] * static_cast<std::int64_t>(dtype_size(c.inputs[0].dtype));
  return with_index("braid.Unbucket", c.inputs[1].dtype, [&]<class I>() {
    PreparedKernel kernel;
    kernel.run = [=](const KernelArgs& a) mutable {
      if (s.n == 0 || row_bytes == 0) return;
      const auto alignment = static_cast<std::uint64_t>(row_bytes) |
                             reinterpret_cast<std::uintptr_t>(a.inputs[0]) |
                             reinterpret_cast<std::uintptr_t>(a.outputs[0]);
      cuda::with_row_unit(alignment, [&]<class Unit>() {
        s.width = row_bytes / static_cast<std::int64_t>(sizeof(Unit));
        cuda::launch(unbucket_kernel<Unit, I>, cuda::blocks_for(s.n * s.ranks * s.width), cuda::kThreads, 0,
                     a.stream, a.in<Unit>(0), a.in<I>(1), a.out<Unit>(0), s, a.status, a.op);
      });
    };
    return kernel;
  });
}

/// values [n, all] -> out [ranks, capacity, width]; `all` is a sum's columns.
struct Sums {
  std::int64_t n, capacity, width, all, places;
  std::int64_t copies;  // of a sum; 1, or the ranks
};

template <class T>
__global__ void sum_buckets_kernel(const T* values, const std::int64_t* entries, T* out, Sums s,
                                   StepStatus* status, int op) {
  const auto place_of = [&](std::int64_t e) { return entries[e] >> kEntryPositionBits; };
  for (std::int64_t i = cuda::grid_index(); i < s.n * s.all; i += cuda::grid_size()) {
    const std::int64_t first = i / s.all, column = i - first * s.all, place = place_of(first);
    if (first > 0 && place_of(first - 1) == place) continue;
    if (place == -1) continue;  // of no id
    if (place < 0 || place >= s.places) {
      cuda::report(status, op, StatusCode::IndexOutOfRange, place, s.places);
      continue;
    }
    constexpr std::int64_t kPosition = (std::int64_t{1} << kEntryPositionBits) - 1;
    constexpr int kAhead = 16;  // loads in flight
    T sum = values[(entries[first] & kPosition) * s.all + column];
    bool more = first + 1 < s.n && place_of(first + 1) == place;
    for (std::int64_t e = first + 1; more; e += kAhead) {
      std::int64_t entry[kAhead];
      T value[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) entry[k] = e + k < s.n ? entries[e + k] : -1;
#pragma unroll
      for (int k = 0; k < kAhead; ++k)
        if (entry[k] >> kEntryPositionBits == place)
          value[k] = values[(entry[k] & kPosition) * s.all + column];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        more = more && entry[k] >> kEntryPositionBits == place;
        if (more) sum += value[k];
      }
    }
    const std::int64_t rank = column / s.width;  // 0 unless sums are cut into columns
    for (std::int64_t copy = 0; copy < s.copies; ++copy)
      out[((rank + copy) * s.capacity + place) * s.width + (column - rank * s.width)] = sum;
  }
}

PreparedKernel prepare_sum(const PrepareContext& c) {
  const auto blocks = c.node.attrs.get<std::string>("blocks", "own");
  const Shape& out = c.outputs[0].shape;
  const Sums s{.n = c.inputs[1].shape[0],
               .capacity = out[1],
               .width = out[2],
               .all = blocks == "columns" ? out[0] * out[2] : out[2],
               .places = blocks == "own" ? out[0] * out[1] : out[1],
               .copies = blocks == "copies" ? out[0] : 1};
  const auto bytes = static_cast<std::uint64_t>(out.elements()) * dtype_size(c.outputs[0].dtype);
  const bool fills = c.attr("fill", false);
  return with_float("braid.SumBuckets", c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [=, device = c.accelerator](const KernelArgs& a) {
      if (fills && bytes != 0) device->fill_zero(a.outputs[0], bytes, a.stream);
      if (s.n == 0 || s.all == 0) return;
      cuda::launch(sum_buckets_kernel<T>, cuda::blocks_for(s.n * s.all), cuda::kThreads, 0, a.stream,
                   a.in<T>(0), a.in<std::int64_t>(1), a.out<T>(0), s, a.status, a.op);
    };
    return kernel;
  });
}

}  // namespace

void register_bucket_rows_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.Unbucket", prepare_unbucket);
  registry.add_cuda("braid.SumBuckets", prepare_sum);
}

}  // namespace braid
