// CUDA kernels of braid.QueryAttention and its gradient. Keys and values are read once, and nothing is
// reused: tensor cores would wait for memory. A block has a head of a piece of a row (query_pieces.cuh). What
// warps and pieces have is added up in their order, so equal inputs give equal bits.
#include "engine/ops/ragged/query_attention.h"

#include "engine/ops/common/half.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/ragged/query_pieces.cuh"

namespace braid {
namespace {

using attention::QueryInputs;
using cuda::DeviceOffsets;

using namespace cuda::query;

constexpr int kMostWidth = 512;

/// Launches take it by value.
struct Args {
  const void *q, *k, *v, *d_out, *out, *log_sum;  // the last three: of gradients
  void *results[3], *new_log_sum;
  bool are_halves[3];  // of results, where the values are halves
  DeviceOffsets offsets;
  Pieces pieces;
  std::int64_t max_length;
  std::int32_t heads, qk, width;  // widths of keys and of values
  double scale;
  bool softmax;
};

/// The head of a piece that a block has: keys [begin, end) of a row.
template <class E>
struct BlockPiece {
  using C = Computed<E>;
  const Args& a;
  std::int64_t query = 0, part = 0, first = 0;  // head of the row; head of the piece; head of the first key
  int begin = 0, end = 0, warp;
  C scale, share;

  __device__ explicit BlockPiece(const Args& args) : a(args), warp(static_cast<int>(threadIdx.x) / 32) {
    const std::int64_t head = blockIdx.x % a.heads, piece = blockIdx.x / a.heads;
    scale = static_cast<C>(a.scale);
    share = share_of(a);
    if (piece >= a.pieces.first[a.offsets.rows]) return;
    const std::int64_t row = a.pieces.rows[piece];
    query = row * a.heads + head;
    part = piece * a.heads + head;
    first = a.offsets.begin(row) * a.heads + head;
    begin = static_cast<int>(piece - a.pieces.first[row]) * kQueryPiece;
    end = min(begin + kQueryPiece, static_cast<int>(a.offsets.length(row)));
  }
  static __device__ C share_of(const Args& a) {
    return C(1) / static_cast<C>(a.max_length > 0 ? a.max_length : *a.pieces.longest);
  }
  __device__ bool is_there() const { return begin < end; }
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
  const BlockPiece<E> h(a);
  if (!h.is_there()) return;
  X q, out;
  q.load(static_cast<const E*>(a.q) + h.query * a.qk, a.qk);
  RunningSum<C> softmax;
  for (int j = h.begin + h.warp; j < h.end; j += kWarps * kAtOnce) {
    X k[kAtOnce], v[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (j + u * kWarps >= h.end) continue;
      k[u].load(h.key(j + u * kWarps), a.qk);
      v[u].load(h.value(j + u * kWarps), a.width);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const C s = h.scale * sum_of_warp(q.dot(k[u]));
      if (j + u * kWarps >= h.end) continue;
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
  out.store_as(static_cast<C*>(a.pieces.parts) + h.part * a.width, a.width, C(1));
  if (!a.softmax || threadIdx.x != 0) return;
  C* const sums = static_cast<C*>(a.pieces.sums) + 2 * h.part;
  sums[0] = softmax.most;
  sums[1] = softmax.sum;
}

/// Adds up what a row's pieces have given, a warp for each head of a row, in the order of pieces.
template <class E, int kWidth, int kPack, bool kBackward>
__global__ void __launch_bounds__(kThreads) join_kernel(const __grid_constant__ Args a) {
  using C = Computed<E>;
  using X = Columns<C, kWidth, kPack>;
  const int warp = static_cast<int>(threadIdx.x) / 32, width = kBackward ? a.qk : a.width;
  const std::int64_t query = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp, row = query / a.heads;
  if (row >= a.offsets.rows) return;
  const std::int64_t first = a.pieces.first[row], end = a.pieces.first[row + 1];
  const auto part = [&](std::int64_t piece) { return piece * a.heads + query % a.heads; };
  const bool weighs = !kBackward && a.softmax;
  const C* const sums = static_cast<const C*>(a.pieces.sums);
  RunningSum<C> all;
  if (weighs) {
    for (std::int64_t p = first; p < end; ++p) all.most = max(all.most, sums[2 * part(p)]);
    for (std::int64_t p = first; p < end; ++p)
      all.sum += sums[2 * part(p) + 1] * exp(sums[2 * part(p)] - all.most);
  }
  X total;
  for (std::int64_t p = first; p < end; ++p) {
    X of_piece;
    of_piece.load(static_cast<const C*>(a.pieces.parts) + part(p) * width, width);
    total.add(of_piece, weighs ? exp(sums[2 * part(p)] - all.most) : C(1));
  }
  const C by = kBackward     ? C(1)
               : !a.softmax  ? BlockPiece<E>::share_of(a)
               : first < end ? C(1) / all.sum
                             : C(0);
  total.template store<E>(a.results[0], a.are_halves[0], query * width, width, by);
  if (weighs && lane_of_thread() == 0)
    static_cast<C*>(a.new_log_sum)[query] = first < end ? all.most + log(all.sum) : C(0);
}

template <class E, int kWidth, int kPack>
__global__ void __launch_bounds__(kThreads) backward_kernel(const __grid_constant__ Args a) {
  using C = Computed<E>;
  using X = Columns<C, kWidth, kPack>;
  constexpr int kAtOnce = kWidth <= 128 ? 4 : 1;
  const BlockPiece<E> h(a);
  if (!h.is_there()) return;
  X q, d_out, dq;
  q.load(static_cast<const E*>(a.q) + h.query * a.qk, a.qk);
  d_out.load(static_cast<const E*>(a.d_out) + h.query * a.width, a.width);
  C mean = 0, log_sum = 0;
  if (a.softmax) {
    X out;
    out.load(static_cast<const C*>(a.out) + h.query * a.width, a.width);
    mean = sum_of_warp(d_out.dot(out));
    log_sum = static_cast<const C*>(a.log_sum)[h.query];
  }
  for (int j = h.begin + h.warp; j < h.end; j += kWarps * kAtOnce) {
    X k[kAtOnce], v[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (j + u * kWarps >= h.end) continue;
      k[u].load(h.key(j + u * kWarps), a.qk);
      v[u].load(h.value(j + u * kWarps), a.width);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const C s = h.scale * sum_of_warp(q.dot(k[u])), d = sum_of_warp(d_out.dot(v[u]));
      if (j + u * kWarps >= h.end) continue;
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
  if (h.warp == 0) dq.store_as(static_cast<C*>(a.pieces.parts) + h.part * a.qk, a.qk, C(1));
}

using Launch = void (*)(const Args& args, StreamRef stream);

template <class E, int kWidth, int kPack, bool kBackward>
void launch_heads(const Args& args, StreamRef stream) {
  const auto blocks = cuda::attention::checked_blocks(args.pieces.most * args.heads);
  if (blocks > 0)
    cuda::launch(kBackward ? backward_kernel<E, kWidth, kPack> : forward_kernel<E, kWidth, kPack>, blocks,
                 kThreads, 0, stream, args);
  const std::int64_t queries = args.offsets.rows * args.heads;
  cuda::launch(join_kernel<E, kWidth, kPack, kBackward>,
               cuda::attention::checked_blocks((queries + kWarps - 1) / kWarps), kThreads, 0, stream, args);
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

/// Where the pieces of so many values in rows are.
struct Scratch {
  std::int64_t most = 0;
  std::size_t first = 0, rows = 0, parts = 0, sums = 0, bytes = 64;  // longest is in front

  Scratch(std::int64_t values, std::int64_t of_batch, std::int64_t heads, std::int64_t width,
          std::size_t number)
      : most(Pieces::most_of(values, of_batch)) {
    const auto take = [&](std::int64_t count, std::size_t size) {
      const std::size_t at = bytes;
      bytes += (static_cast<std::size_t>(count) * size + 63) / 64 * 64;
      return at;
    };
    first = take(of_batch + 1, sizeof(std::int32_t));
    rows = take(most, sizeof(std::int32_t));
    parts = take(most * heads * width, number);
    sums = take(most * heads * 2, number);
  }
  Pieces pieces(void* scratch) const {
    auto* const at = static_cast<std::byte*>(scratch);
    return {reinterpret_cast<std::int64_t*>(at),
            reinterpret_cast<std::int32_t*>(at + first),
            reinterpret_cast<std::int32_t*>(at + rows),
            at + parts,
            at + sums,
            most};
  }
};

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
  const Scratch scratch(c.inputs[1].shape[0], c.inputs[static_cast<std::size_t>(in.offsets())].shape[0] - 1,
                        args.heads, kBackward ? q[2] : v[2],
                        c.inputs[0].dtype == DType::Float64 ? sizeof(double) : sizeof(float));
  PreparedKernel kernel;
  kernel.scratch_bytes = scratch.bytes;
  kernel.run = [args, in, packed, scratch,
                offsets = cuda::DeviceOffsetsInput(c, in.offsets(), c.inputs[1].shape[0]),
                plain = launch_of<kBackward>(c.inputs[0].dtype, widest, false),
                outputs = std::vector(c.outputs.begin(), c.outputs.end())](const KernelArgs& a) {
    Args now = args;
    now.offsets = offsets.of(a);
    now.pieces = scratch.pieces(a.scratch);
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
    cuda::launch(plan_pieces_kernel, 1, kThreads, 0, a.stream, now.pieces, now.offsets, now.max_length,
                 a.status, a.op);
    bool is_aligned = packed != nullptr;
    for (const void* at :
         {now.q, now.k, now.v, now.d_out, now.out, static_cast<const void*>(now.results[0]),
          static_cast<const void*>(now.results[1]), static_cast<const void*>(now.results[2])})
      is_aligned = is_aligned && cuda::is_aligned16(at);
    if (now.offsets.rows > 0 && now.heads > 0) (is_aligned ? packed : plain)(now, a.stream);
    if constexpr (kBackward)
      for (const std::size_t o : {1, 2})
        cuda::attention::zero_room(a, now.offsets, a.outputs[o], row_bytes(outputs[o]),
                                   row_bytes(outputs[o]));
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
