// CUDA kernels of braid.QueryAttention and its gradient. Keys and values are read once, and nothing is
// reused: tensor cores would wait for memory. A block has a head of a row; its warps take keys in turns, a
// lane some columns of each. What the warps have is added up in their order, so equal inputs give equal bits.
#include "engine/ops/ragged/query_attention.h"

#include <limits>

#include "engine/ops/common/half.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/ragged/attention_args.cuh"

namespace braid {
namespace {

using attention::QueryInputs;
using cuda::DeviceOffsets;

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kMostWidth = 512;

template <class E>
using Computed = std::conditional_t<std::is_same_v<E, double>, double, float>;

/// Launches take it by value.
struct Args {
  const void *q, *k, *v, *d_out, *out, *log_sum;  // the last three: of gradients
  void *results[3], *new_log_sum;
  bool are_halves[3];  // of results, where the values are halves
  DeviceOffsets offsets;
  const std::int64_t* longest;
  std::int64_t max_length;
  std::int32_t heads, qk, width;  // widths of keys and of values
  double scale;
  bool softmax;
};

/// Checks all offsets, and finds the longest row. One block.
__global__ void __launch_bounds__(kThreads)
    longest_kernel(std::int64_t* longest, DeviceOffsets offsets, std::int64_t max_length, StepStatus* status,
                   int op) {
  __shared__ unsigned long long most;
  if (threadIdx.x == 0) most = 1;
  __syncthreads();
  for (std::int64_t row = threadIdx.x; row < offsets.rows; row += kThreads) {
    offsets.check(row, status, op);
    if (!offsets.is_good(row)) continue;
    const std::int64_t length = offsets.length(row);
    if (max_length > 0 && length > max_length)
      cuda::report(status, op, StatusCode::IndexOutOfRange, length, max_length + 1);
    atomicMax(&most, static_cast<unsigned long long>(length));
  }
  __syncthreads();
  if (threadIdx.x == 0) *longest = static_cast<std::int64_t>(most);
}

__device__ int lane_of_thread() { return static_cast<int>(threadIdx.x) % 32; }
/// A lane's columns of a vector of up to kWidth numbers: kPack at a time.
template <class C, int kWidth, int kPack>
struct Columns {
  static constexpr int kPacks = kWidth / (32 * kPack);
  C at[kPacks][kPack] = {};

  static __device__ int column(int pack) { return (pack * 32 + lane_of_thread()) * kPack; }
  template <class E>
  __device__ void load(const E* from, int width) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) >= width) continue;
      const auto x = *reinterpret_cast<const cuda::Pack<E, kPack>*>(from + column(p));
#pragma unroll
      for (int i = 0; i < kPack; ++i) at[p][i] = static_cast<C>(x.at[i]);
    }
  }
  template <class E>
  __device__ void store_as(E* to, int width, C by) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) >= width) continue;
      cuda::Pack<E, kPack> x;
#pragma unroll
      for (int i = 0; i < kPack; ++i) x.at[i] = static_cast<E>(by * at[p][i]);
      *reinterpret_cast<cuda::Pack<E, kPack>*>(to + column(p)) = x;
    }
  }
  /// by times this, at element `first` of `to`.
  template <class E>
  __device__ void store(void* to, bool is_half, std::int64_t first, int width, C by) const {
    if (is_half)
      store_as(static_cast<E*>(to) + first, width, by);
    else
      store_as(static_cast<C*>(to) + first, width, by);
  }
  __device__ void add(const Columns& x, C by) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
#pragma unroll
      for (int i = 0; i < kPack; ++i) at[p][i] += by * x.at[p][i];
  }
  __device__ void scale(C by) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
#pragma unroll
      for (int i = 0; i < kPack; ++i) at[p][i] *= by;
  }
  /// This lane's part.
  __device__ C dot(const Columns& x) const {
    C sum = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
#pragma unroll
      for (int i = 0; i < kPack; ++i) sum += at[p][i] * x.at[p][i];
    return sum;
  }
};

template <class C>
__device__ C sum_of_warp(C x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0U, x, step);
  return x;
}

/// The sum of what the block's warps have, each `by` its own factor; the first warp gets it.
template <class C, int kWidth, int kPack>
__device__ void add_warps(Columns<C, kWidth, kPack>& x, C by) {
  using X = Columns<C, kWidth, kPack>;
  __shared__ C parts[kWarps][kWidth];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  x.scale(by);
#pragma unroll
  for (int p = 0; p < X::kPacks; ++p)
#pragma unroll
    for (int i = 0; i < kPack; ++i) parts[warp][X::column(p) + i] = x.at[p][i];
  __syncthreads();
  if (warp != 0) return;
#pragma unroll
  for (int p = 0; p < X::kPacks; ++p)
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      C sum = parts[0][X::column(p) + i];
      for (int w = 1; w < kWarps; ++w) sum += parts[w][X::column(p) + i];
      x.at[p][i] = sum;
    }
}

/// What softmax has seen so far: the largest score, and the sum of exp(score - that).
template <class C>
struct RunningSum {
  C most = -std::numeric_limits<C>::infinity(), sum = 0;

  /// The factor that what was weighed before is to be multiplied by.
  __device__ C rise(C score) {
    if (!(score > most)) return C(1);
    const C factor = exp(most - score);
    most = score;
    sum *= factor;
    return factor;
  }
  __device__ C weigh(C score) {
    const C weight = exp(score - most);
    sum += weight;
    return weight;
  }
};
/// Of all warps. Returns the factor of this one.
template <class C>
__device__ C join_warps(RunningSum<C>& mine) {
  __shared__ C most[kWarps], sums[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (lane_of_thread() == 0) {
    most[warp] = mine.most;
    sums[warp] = mine.sum;
  }
  __syncthreads();
  RunningSum<C> all;
  for (int w = 0; w < kWarps; ++w) all.most = most[w] > all.most ? most[w] : all.most;
  for (int w = 0; w < kWarps; ++w)
    if (sums[w] != 0) all.sum += sums[w] * exp(most[w] - all.most);
  const C factor = mine.sum != 0 ? exp(mine.most - all.most) : C(0);
  mine = all;
  return factor;
}

/// The head of a row that a block has.
template <class E>
struct BlockHead {
  using C = Computed<E>;
  const Args& a;
  std::int64_t piece, first;  // first: head of the row's first value
  std::int32_t length;
  int warp;
  C scale, share;

  __device__ explicit BlockHead(const Args& args) : a(args) {
    piece = blockIdx.x;
    const std::int64_t row = piece / a.heads;
    const bool is_good = a.offsets.is_good(row);
    first = (is_good ? a.offsets.begin(row) : 0) * a.heads + piece % a.heads;
    length = is_good ? static_cast<std::int32_t>(a.offsets.length(row)) : 0;
    warp = static_cast<int>(threadIdx.x) / 32;
    scale = static_cast<C>(a.scale);
    share = C(1) / static_cast<C>(a.max_length > 0 ? a.max_length : *a.longest);
  }
  __device__ std::int64_t head_of(int value) const {
    return first + static_cast<std::int64_t>(value) * a.heads;
  }
  __device__ const E* key(int value) const { return static_cast<const E*>(a.k) + head_of(value) * a.qk; }
  __device__ const E* value(int value) const { return static_cast<const E*>(a.v) + head_of(value) * a.width; }
};

template <class C>
__device__ C sigmoid(C x) {
  return C(1) / (C(1) + exp(-x));
}

template <class E, int kWidth, int kPack>
__global__ void __launch_bounds__(kThreads) forward_kernel(const __grid_constant__ Args a) {
  using C = Computed<E>;
  using X = Columns<C, kWidth, kPack>;
  constexpr int kAtOnce = kWidth <= 128 ? 4 : 1;
  const BlockHead<E> h(a);
  X q, out;
  q.load(static_cast<const E*>(a.q) + h.piece * a.qk, a.qk);
  RunningSum<C> softmax;
  for (int j = h.warp; j < h.length; j += kWarps * kAtOnce) {
    X k[kAtOnce], v[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (j + u * kWarps >= h.length) continue;
      k[u].load(h.key(j + u * kWarps), a.qk);
      v[u].load(h.value(j + u * kWarps), a.width);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const C s = h.scale * sum_of_warp(q.dot(k[u]));
      if (j + u * kWarps >= h.length) continue;
      C weight;
      if (a.softmax) {
        out.scale(softmax.rise(s));
        weight = softmax.weigh(s);
      } else {
        weight = s * sigmoid(s);
      }
      out.add(v[u], weight);
    }
  }
  add_warps(out, a.softmax ? join_warps(softmax) : C(1));
  if (h.warp != 0) return;
  const C by = !a.softmax ? h.share : h.length > 0 ? C(1) / softmax.sum : C(0);
  out.template store<E>(a.results[0], a.are_halves[0], h.piece * a.width, a.width, by);
  if (a.softmax && threadIdx.x == 0)
    static_cast<C*>(a.new_log_sum)[h.piece] = h.length > 0 ? softmax.most + log(softmax.sum) : C(0);
}

template <class E, int kWidth, int kPack>
__global__ void __launch_bounds__(kThreads) backward_kernel(const __grid_constant__ Args a) {
  using C = Computed<E>;
  using X = Columns<C, kWidth, kPack>;
  constexpr int kAtOnce = kWidth <= 128 ? 4 : 1;
  const BlockHead<E> h(a);
  X q, d_out, dq;
  q.load(static_cast<const E*>(a.q) + h.piece * a.qk, a.qk);
  d_out.load(static_cast<const E*>(a.d_out) + h.piece * a.width, a.width);
  C mean = 0, log_sum = 0;
  if (a.softmax) {
    X out;
    out.load(static_cast<const C*>(a.out) + h.piece * a.width, a.width);
    mean = sum_of_warp(d_out.dot(out));
    log_sum = static_cast<const C*>(a.log_sum)[h.piece];
  }
  for (int j = h.warp; j < h.length; j += kWarps * kAtOnce) {
    X k[kAtOnce], v[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (j + u * kWarps >= h.length) continue;
      k[u].load(h.key(j + u * kWarps), a.qk);
      v[u].load(h.value(j + u * kWarps), a.width);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const C s = h.scale * sum_of_warp(q.dot(k[u])), d = sum_of_warp(d_out.dot(v[u]));
      if (j + u * kWarps >= h.length) continue;
      C weight, slope;
      if (a.softmax) {
        weight = exp(s - log_sum);
        slope = weight * (d - mean) * h.scale;
      } else {
        const C of_s = sigmoid(s);
        weight = s * of_s * h.share;
        slope = d * h.share * of_s * (C(1) + s * (C(1) - of_s)) * h.scale;
      }
      const std::int64_t head = h.head_of(j + u * kWarps);
      q.template store<E>(a.results[1], a.are_halves[1], head * a.qk, a.qk, slope);
      d_out.template store<E>(a.results[2], a.are_halves[2], head * a.width, a.width, weight);
      dq.add(k[u], slope);
    }
  }
  add_warps(dq, C(1));
  if (h.warp == 0) dq.template store<E>(a.results[0], a.are_halves[0], h.piece * a.qk, a.qk, C(1));
}

using Launch = void (*)(const Args& args, StreamRef stream);

template <class E, int kWidth, int kPack, bool kBackward>
void launch_heads(const Args& args, StreamRef stream) {
  const auto blocks = cuda::attention::checked_blocks(args.offsets.rows * args.heads);
  if constexpr (kBackward)
    cuda::launch(backward_kernel<E, kWidth, kPack>, blocks, kThreads, 0, stream, args);
  else
    cuda::launch(forward_kernel<E, kWidth, kPack>, blocks, kThreads, 0, stream, args);
}

template <class E, bool kBackward>
Launch launch_of(std::int64_t width, bool packed) {
  constexpr int kPack = sizeof(E) == 8 ? 2 : 4;
  if (width <= 128)
    return packed ? launch_heads<E, 128, kPack, kBackward> : launch_heads<E, 128, 1, kBackward>;
  return packed ? launch_heads<E, kMostWidth, kPack, kBackward> : launch_heads<E, kMostWidth, 1, kBackward>;
}

template <bool kBackward>
Launch launch_of(DType dtype, std::int64_t width, bool packed) {
  switch (dtype) {
    case DType::Float16:
      return launch_of<Float16, kBackward>(width, packed);
    case DType::BFloat16:
      return launch_of<BFloat16, kBackward>(width, packed);
    case DType::Float64:
      return launch_of<double, kBackward>(width, packed);
    default:
      return launch_of<float, kBackward>(width, packed);
  }
}

template <bool kBackward>
PreparedKernel prepare(const PrepareContext& c) {
  const QueryInputs in = attention::query_inputs_of(c.node, kBackward);
  const Shape &q = c.inputs[0].shape, &v = c.inputs[2].shape;
  Args args{};
  args.max_length = c.attr("max_length", std::int64_t{0});
  args.heads = static_cast<std::int32_t>(q[1]);
  args.qk = static_cast<std::int32_t>(q[2]);
  args.width = static_cast<std::int32_t>(v[2]);
  args.scale = attention::scale_of(c.node.attrs, q[2]);
  args.softmax = in.softmax;
  for (std::size_t o = 0; o < c.outputs.size() && o < 3; ++o)
    args.are_halves[o] = is_half(c.outputs[o].dtype);
  const std::int64_t widest = std::max(q[2], v[2]);
  const Launch packed =
      q[2] % 4 == 0 && v[2] % 4 == 0 ? launch_of<kBackward>(c.inputs[0].dtype, widest, true) : nullptr;
  PreparedKernel kernel;
  kernel.scratch_bytes = 64;
  kernel.run = [args, in, packed, offsets = cuda::DeviceOffsetsInput(c, in.offsets(), c.inputs[1].shape[0]),
                plain = launch_of<kBackward>(c.inputs[0].dtype, widest, false),
                outputs = std::vector(c.outputs.begin(), c.outputs.end())](const KernelArgs& a) {
    Args now = args;
    now.offsets = offsets.of(a);
    now.longest = static_cast<const std::int64_t*>(a.scratch);
    now.q = a.inputs[0];
    now.k = a.inputs[1];
    now.v = a.inputs[2];
    for (std::size_t o = 0; o < (kBackward ? 3U : 1U); ++o) now.results[o] = a.outputs[o];
    if (kBackward) now.d_out = a.inputs[3];
    if (!kBackward && in.softmax) now.new_log_sum = a.outputs[1];
    if (kBackward && in.softmax) {
      now.out = a.inputs[in.output()];
      now.log_sum = a.inputs[in.output() + 1];
    }
    cuda::launch(longest_kernel, 1, kThreads, 0, a.stream, static_cast<std::int64_t*>(a.scratch), now.offsets,
                 now.max_length, a.status, a.op);
    bool is_aligned = packed != nullptr;
    for (const void* at :
         {now.q, now.k, now.v, now.d_out, now.out, static_cast<const void*>(now.results[0]),
          static_cast<const void*>(now.results[1]), static_cast<const void*>(now.results[2])})
      is_aligned = is_aligned && cuda::is_aligned16(at);
    if (now.offsets.rows > 0 && now.heads > 0) (is_aligned ? packed : plain)(now, a.stream);
    if constexpr (kBackward)
      for (const std::size_t o : {1, 2})
        cuda::attention::zero_room(a, now.offsets, a.outputs[o], row_bytes(outputs[o]));
  };
  return kernel;
}

bool supports(const Node&, std::span<const OutputInfo> inputs) {
  const auto fits = [&](std::size_t i) {
    const Shape& shape = inputs[i].shape;
    return !shape.has_rank() || shape.rank() != 3 || shape[2] <= kMostWidth;
  };
  return fits(0) && fits(2);
}

}  // namespace

void register_query_attention_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.QueryAttention", prepare<false>, supports);
  registry.add_cuda("braid.QueryAttentionGrad", prepare<true>, supports);
  cuda_takes_halves({"braid.QueryAttention", "braid.QueryAttentionGrad"});
}

}  // namespace braid
