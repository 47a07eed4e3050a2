// CUDA kernels of braid.ReluBiasGrad and its relatives, in one launch: each block does a tile of columns over
// a chunk of rows and writes dz and its partial column sums; the block that finishes a tile last adds the
// chunks' sums in their order, so the result does not depend on who that was. Lanes are the grid's third
// axis. dz's columns go through shared memory, so that they are written as they lie. Sums and what is
// computed are of type T; dy, y and dz may be stored as halves, S.
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/half.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/fused/relu_bias_grad.h"

namespace braid {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;  // rows that a thread has in flight
constexpr std::int64_t kMostChunks = 128;
constexpr std::int64_t kBlocks = 1056;      // about 8 for each of a large device's processors
constexpr std::int64_t kMostLanes = 65535;  // of a grid's third axis

/// V columns of a thread, side by side; X threads side by side, the others below them.
template <class T, int V, int X>
struct Tile {
  static constexpr int kColumns = V * X, kRows = kThreads / X;
  static constexpr int kRowsAtOnce = kRows * kUnroll;
};
constexpr int kWideAcross = 16;
template <class S>
constexpr int kWideVector = 16 / static_cast<int>(sizeof(S));
template <class S>
using Wide = Tile<float, kWideVector<S>, kWideAcross>;
template <class T>
using Narrow = Tile<T, 1, 32>;

template <class S, class T>
struct Problem {
  const S *dy, *y;
  const T *g, *w;  // of a head, in place of dy
  S *dz, *dz_columns;
  T *db, *dw;
  T* partial;         // [kSums, lanes, chunks, n]
  unsigned* arrived;  // [lanes, tiles]
  std::int64_t m, n, rows_a_chunk;
  std::int64_t dy_lane, y_lane, row;  // strides
};

template <class Values, class T>
__device__ Values load(const T* from) {
  return *reinterpret_cast<const Values*>(from);
}
template <class Values, class T>
__device__ void store(T* to, const Values& values) {
  *reinterpret_cast<Values*>(to) = values;
}

/// A tile of dz^T to memory, four rows a thread where they are side by side there.
template <class S, class T, int kColumns, int kRowsAtOnce, class Place>
__device__ void write_columns(const Problem<S, T>& p, const S (&columns)[kColumns][kRowsAtOnce], Place place,
                              std::int64_t lane, std::int64_t begin, std::int64_t last) {
  using Four = cuda::Pack<S, 4>;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * kColumns;
  S* const to = p.dz_columns + (lane * p.n + first_column) * p.m + begin;
  const bool whole = p.m % 4 == 0 && reinterpret_cast<std::uintptr_t>(p.dz_columns) % sizeof(Four) == 0;
#pragma unroll
  for (int i = threadIdx.x; i < kColumns * kRowsAtOnce / 4; i += kThreads) {
    const int c = i / (kRowsAtOnce / 4), row = i % (kRowsAtOnce / 4) * 4;
    if (first_column + c >= p.n || begin + row >= last) continue;
    const Four values = *reinterpret_cast<const Four*>(&columns[c][place(c, row)]);
    T* const at = to + c * p.m + row;
    if (whole)  // then chunks end at multiples of four, too
      store(at, values);
    else
      for (int r = 0; r < 4 && begin + row + r < last; ++r) at[r] = values.at[r];
  }
}

template <class S, class T, int V, int X, bool kHead, GradLayout kLayout>
__global__ void __launch_bounds__(kThreads) relu_bias_grad(Problem<S, T> p) {
  using Values = cuda::Pack<T, V>;
  using Stored = cuda::Pack<S, V>;
  constexpr int kRows = Tile<T, V, X>::kRows;
  constexpr int kSums = kHead ? 2 : 1;  // db, dw
  constexpr bool kWritesRows = kLayout != GradLayout::Columns, kWritesColumns = kLayout != GradLayout::Rows;
  constexpr int kColumns = Tile<T, V, X>::kColumns, kRowsAtOnce = Tile<T, V, X>::kRowsAtOnce;
  // A tile of dz^T. Groups of four rows change places by the column, so that neither the threads that write
  // it row by row nor those that read it column by column meet in the same banks.
  __shared__ alignas(4 * sizeof(S))
      S columns[kWritesColumns ? kColumns : 1][kWritesColumns ? kRowsAtOnce : 4];
  const auto place = [](int column_of_tile, int row) { return row ^ (column_of_tile / V % 8 * 4); };
  const std::int64_t n = p.n, lane = blockIdx.z, chunks = gridDim.y;
  const S* const dy = kHead ? nullptr : p.dy + lane * p.dy_lane;
  const T* const of_head = kHead ? p.g + lane * p.dy_lane : nullptr;
  const S* const y = p.y + lane * p.y_lane;
  S* const dz = kWritesRows ? p.dz + lane * p.m * n : nullptr;
  T* const results[] = {p.db + lane * n, kHead ? p.dw + lane * n : nullptr};
  const auto partial = [&](int s, std::int64_t chunk) {
    return p.partial + ((s * gridDim.z + lane) * chunks + chunk) * n;
  };
  unsigned* const arrived = p.arrived + lane * gridDim.x;
  const int tx = threadIdx.x % X, ty = threadIdx.x / X;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * X + tx) * V;
  const std::int64_t first = blockIdx.y * p.rows_a_chunk;
  const std::int64_t last = min(first + p.rows_a_chunk, p.m);
  Values sums[kSums] = {};
  if (kWritesColumns || column < n) {  // all threads of a block write columns
    Values w = {};
    if constexpr (kHead)
      if (column < n) w = load<Values>(p.w + lane * n + column);
    for (std::int64_t begin = first; begin < last; begin += kRowsAtOnce) {
      const std::int64_t r = begin + ty, end = column < n ? last : begin;
      Stored g[kUnroll], h[kUnroll];
      T factors[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t row = r + u * kRows;
        if (row >= end) continue;
        if constexpr (kHead)
          factors[u] = of_head[row];
        else
          g[u] = load<Stored>(dy + row * p.row + column);
        h[u] = load<Stored>(y + row * p.row + column);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t row = r + u * kRows;
        if (row >= end) continue;
        Stored masked;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const T output = static_cast<T>(h[u].at[v]);
          T gradient;
          if constexpr (kHead) {
            sums[1].at[v] += factors[u] * output;
            gradient = factors[u] * w.at[v];
          } else {
            gradient = static_cast<T>(g[u].at[v]);
          }
          if (!(output > T(0))) gradient = T(0);
          sums[0].at[v] += gradient;
          masked.at[v] = S(gradient);
        }
        if constexpr (kWritesRows) store(dz + row * n + column, masked);
        if constexpr (kWritesColumns)
#pragma unroll
          for (int v = 0; v < V; ++v) columns[tx * V + v][place(tx * V, ty + u * kRows)] = masked.at[v];
      }
      if constexpr (kWritesColumns) {
        __syncthreads();
        write_columns(p, columns, place, lane, begin, last);
        __syncthreads();
      }
    }
  }
  __shared__ Values of_rows[kSums][kRows][X];
  __shared__ bool is_last;
  const auto add_rows = [&] {  // of the block, into those of its first row of threads
#pragma unroll
    for (int s = 0; s < kSums; ++s) of_rows[s][ty][tx] = sums[s];
    __syncthreads();
    if (ty != 0) return;
    for (int k = 1; k < kRows; ++k)
#pragma unroll
      for (int s = 0; s < kSums; ++s)
#pragma unroll
        for (int v = 0; v < V; ++v) sums[s].at[v] += of_rows[s][k][tx].at[v];
  };
  add_rows();
  if (ty == 0 && column < n) {
#pragma unroll
    for (int s = 0; s < kSums; ++s)
      store((chunks == 1 ? results[s] : partial(s, blockIdx.y)) + column, sums[s]);
    __threadfence();
  }
  if (chunks == 1) return;
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(&arrived[blockIdx.x], 1U) == gridDim.y - 1;
    if (is_last) arrived[blockIdx.x] = 0;  // for the next run
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
    sums[s] = {};
    if (column < n)
      for (std::int64_t chunk = ty; chunk < chunks; chunk += kRows)
#pragma unroll
        for (int v = 0; v < V; ++v) sums[s].at[v] += __ldcg(partial(s, chunk) + column + v);
  }
  add_rows();
  if (ty != 0 || column >= n) return;
#pragma unroll
  for (int s = 0; s < kSums; ++s) store(results[s] + column, sums[s]);
}

template <class S, class T, bool kHead, GradLayout kLayout>
PreparedKernel prepare_of(const PrepareContext& c, const ReluBiasGradForm& form) {
  const std::int64_t lanes = form.lanes, m = form.m, n = form.n;
  PreparedKernel kernel;
  if (n == 0 || lanes == 0) {
    kernel.run = [](const KernelArgs&) {};
    return kernel;
  }
  // Wide tiles need 16-byte addresses, which values have but views may not.
  const bool wide = std::is_same_v<T, float> && n % kWideVector<S> == 0;
  const std::int64_t columns = wide ? Wide<S>::kColumns : Narrow<T>::kColumns;
  const std::int64_t rows_of_block = wide ? Wide<S>::kRows : Narrow<T>::kRows;
  const std::int64_t tiles = (n + columns - 1) / columns;
  const std::int64_t most_tiles = (n + Narrow<T>::kColumns - 1) / Narrow<T>::kColumns;
  const std::int64_t wanted = std::max<std::int64_t>(1, kBlocks / (tiles * lanes));
  const std::int64_t useful = (m + kUnroll * rows_of_block - 1) / (kUnroll * rows_of_block);
  std::int64_t chunks = std::clamp<std::int64_t>(std::min(wanted, useful), 1, kMostChunks);
  std::int64_t rows = (m + chunks - 1) / chunks;
  if (kLayout != GradLayout::Rows) {  // chunks of columns begin at whole sectors of memory
    rows = (rows + Wide<S>::kRowsAtOnce - 1) / Wide<S>::kRowsAtOnce * Wide<S>::kRowsAtOnce;
    chunks = std::max<std::int64_t>(1, (m + rows - 1) / std::max<std::int64_t>(rows, 1));
  }
  kernel.scratch_bytes = static_cast<std::size_t>((kHead ? 2 : 1) * lanes * chunks * n) * sizeof(T);
  // Counters of the op's own, zero between runs.
  const auto arrived =
      c.accelerator->allocate(static_cast<std::uint64_t>(most_tiles * lanes) * sizeof(unsigned), "counters");
  kernel.run = [=](const KernelArgs& a) {
    Problem<S, T> p{};
    p.dy = kHead ? nullptr : a.in<S>(0);
    p.g = kHead ? a.in<T>(0) : nullptr;
    p.w = kHead ? a.in<T>(1) : nullptr;
    p.y = a.in<S>(kHead ? 2 : 1);
    p.dz = form.rows_output < 0 ? nullptr : a.out<S>(form.rows_output);
    p.dz_columns = form.columns_output < 0 ? nullptr : a.out<S>(form.columns_output);
    p.db = a.out<T>(1);
    p.dw = kHead ? a.out<T>(2) : nullptr;
    p.partial = static_cast<T*>(a.scratch);
    p.arrived = reinterpret_cast<unsigned*>(arrived.get());
    p.m = m;
    p.n = n;
    p.rows_a_chunk = rows;
    p.dy_lane = kHead ? form.g_stride : form.lane_stride;
    p.y_lane = form.lane_stride;
    p.row = form.row_stride;
    const auto start = [&](auto function, std::int64_t across) {
      cuda::launch(
          function,
          dim3(static_cast<unsigned>(across), static_cast<unsigned>(chunks), static_cast<unsigned>(lanes)),
          dim3(kThreads), 0, a.stream, p);
    };
    if constexpr (std::is_same_v<T, float>) {
      const auto aligned = [](const void* at) { return at == nullptr || cuda::is_aligned16(at); };
      if (wide && (kHead || aligned(p.dy)) && aligned(p.w) && aligned(p.y) && aligned(p.dz) &&
          aligned(p.db) && aligned(p.dw))
        return start(relu_bias_grad<S, T, kWideVector<S>, kWideAcross, kHead, kLayout>, tiles);
    }
    start(relu_bias_grad<S, T, 1, 32, kHead, kLayout>, most_tiles);
  };
  return kernel;
}

template <class S, class T, bool kHead>
PreparedKernel prepare_layout(const PrepareContext& c, const ReluBiasGradForm& form) {
  if (form.columns_output < 0) return prepare_of<S, T, kHead, GradLayout::Rows>(c, form);
  return form.rows_output < 0 ? prepare_of<S, T, kHead, GradLayout::Columns>(c, form)
                              : prepare_of<S, T, kHead, GradLayout::Both>(c, form);
}

/// Halves are multiplied as they lie: they have no columns.
template <class S, bool kHead>
PreparedKernel prepare_halves(const PrepareContext& c, const ReluBiasGradForm& form) {
  if (form.columns_output >= 0) c.fail("halves have no columns");
  return prepare_of<S, float, kHead, GradLayout::Rows>(c, form);
}

PreparedKernel prepare(const PrepareContext& c) {
  const ReluBiasGradForm form(c);
  switch (c.inputs[form.head ? 2 : 1].dtype) {
    case DType::Float64:
      return form.head ? prepare_layout<double, double, true>(c, form)
                       : prepare_layout<double, double, false>(c, form);
    case DType::Float16:
      return form.head ? prepare_halves<Float16, true>(c, form) : prepare_halves<Float16, false>(c, form);
    case DType::BFloat16:
      return form.head ? prepare_halves<BFloat16, true>(c, form) : prepare_halves<BFloat16, false>(c, form);
    default:
      return form.head ? prepare_layout<float, float, true>(c, form)
                       : prepare_layout<float, float, false>(c, form);
  }
}

}  // namespace

void register_relu_bias_grad_cuda(OpRegistry& registry) {
  cuda_takes_halves({"braid.ReluBiasGrad", "braid.JoinedReluBiasGrad", "braid.ReluHeadGrad"});
  for (const char* name :
       {"braid.ReluBiasGrad", "braid.ReluBiasGradColumns", "braid.JoinedReluBiasGrad", "braid.ReluHeadGrad"})
    registry.add_cuda(name, prepare, [](const Node& node, std::span<const OutputInfo> inputs) {
      const Shape& y = inputs.back().shape;
      return y.rank() == 2 || y[reads_joined_lanes(node) ? 1 : 0] <= kMostLanes;
    });
}

}  // namespace braid
