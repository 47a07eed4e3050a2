// Attention without tensor cores, for heads of any width and for float64: a warp has a query, or for dk and
// dv a key, and its lanes the keys or queries that go with it, 32 at a time. Columns of results are added up
// kColumns at a time; scores are computed again for each such part. Also the sums that softmax's gradients
// begin with.
#include <limits>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/half.h"
#include "engine/ops/ragged/dense_args.cuh"

namespace braid::cuda::attention {
namespace {

constexpr int kPlainThreads = 128, kPlainWarps = kPlainThreads / 32;
constexpr int kPiece = 32;  // queries, or keys, of a block
constexpr int kOfLane = 4, kColumns = 32 * kOfLane;

__device__ int lane_of_thread() { return static_cast<int>(threadIdx.x) % 32; }

template <class T>
struct ComputedType {
  using Type = float;
};
template <>
struct ComputedType<double> {
  using Type = double;
};
template <class T>
using Computed = typename ComputedType<T>::Type;

template <class C>
__device__ C sum_of_warp(C x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0U, x, step);
  return x;
}
template <class C>
__device__ C max_of_warp(C x) {
  for (int step = 16; step > 0; step /= 2) {
    const C other = __shfl_xor_sync(~0U, x, step);
    x = other > x ? other : x;
  }
  return x;
}
/// The product of two vectors.
template <class C, class T>
__device__ C dot(const T* a, const T* b, int width) {
  C sum = 0;
  for (int c = 0; c < width; ++c) sum += static_cast<C>(a[c]) * static_cast<C>(b[c]);
  return sum;
}
template <class C>
__device__ C sigmoid(C x) {
  return C(1) / (C(1) + exp(-x));
}
template <class C, class T>
__device__ void put(void* to, bool is_half, std::int64_t at, C value) {
  if (is_half)
    static_cast<T*>(to)[at] = static_cast<T>(value);
  else
    static_cast<C*>(to)[at] = value;
}

/// What a head of a row is to the lanes of a warp.
template <class T, class Args>
struct PlainHead {
  using C = Computed<T>;
  const Args& args;
  BlockPiece<typename Args::Row> piece;
  int head;
  Places<T> at;
  C scale, share;
  bool softmax;

  __device__ PlainHead(const Args& a, const BlockPiece<typename Args::Row>& p, bool is_softmax)
      : args(a),
        piece(p),
        head(p.head),
        at(a, p.row, p.head),
        scale(static_cast<C>(a.scale)),
        share(static_cast<C>(a.share())),
        softmax(is_softmax) {}
  __device__ C score(int i, int j) const {
    const C s = scale * dot<C>(at.q + i * at.q_step, at.k + j * at.k_step, args.qk_width);
    if constexpr (Args::kHasMask) {
      if (!args.has_mask()) return s;
      const std::int64_t of_pair = args.mask_at(piece.row, head, i, j);
      if (args.seen) return args.seen[of_pair] ? s : static_cast<C>(args.hidden);
      return s + static_cast<const C*>(args.added)[of_pair];
    }
    return s;
  }
  __device__ bool is_hidden(int i, int j) const {
    if constexpr (Args::kHasMask) return args.seen && !args.seen[args.mask_at(piece.row, head, i, j)];
    return false;
  }
  struct Pair {
    C weight, slope;  // of dv; of dq and dk
  };
  /// Of a query and a key that it sees.
  __device__ Pair pair(int i, int j) const {
    const C s = score(i, j);
    const C d = dot<C>(at.d_out + i * at.out_step, at.v + j * at.v_step, args.v_width);
    if (softmax) {
      const KeptSums<C> kept = args.template kept_sums<C>(piece.row, head, i);
      const C weight = exp((s - kept.max) - kept.log_sum);
      const C slope = weight * (d - static_cast<const C*>(args.dots)[args.dot_at(piece.row, head, i)]);
      return {weight, is_hidden(i, j) ? C(0) : slope};
    }
    const C of_s = sigmoid(s);
    return {s * of_s * share, d * share * of_s * (C(1) + s * (C(1) - of_s))};
  }
  /// f(first, end) for the keys that query i sees, in ranges.
  template <class F>
  __device__ void for_keys(int i, const F& f) const {
    const auto range = args.mask(piece.row).keys(i);
    f(range.from, range.to);
    if (range.self) f(i, i + 1);
  }
};

template <class T, class Args>
__global__ void __launch_bounds__(kPlainThreads)
    plain_forward(const __grid_constant__ Args args, bool softmax) {
  using C = Computed<T>;
  BlockPiece<typename Args::Row> piece;
  if (!args.template begin_piece<kPiece>(blockIdx.x, false, piece)) return;
  const PlainHead<T, Args> h(args, piece, softmax);
  const int lane = lane_of_thread();
  const int end = min(piece.first + kPiece, static_cast<int>(args.mask(piece.row).queries()));
  for (int i = piece.first + static_cast<int>(threadIdx.x) / 32; i < end; i += kPlainWarps)
    for (int column = 0; column == 0 || column < args.v_width; column += kColumns) {
      C sums[kOfLane] = {}, sum = 0, most = -std::numeric_limits<C>::infinity();
      h.for_keys(i, [&](int from, int to) {
        for (int first = from; first < to; first += 32) {
          const bool is_there = first + lane < to;
          C weight = is_there ? h.score(i, first + lane) : C(0);
          if (softmax) {
            const C now = max_of_warp(is_there && weight > most ? weight : most);
            const C base = now > -std::numeric_limits<C>::infinity() ? now : C(0);
            const C factor = exp(most - base);
            weight = is_there ? exp(weight - base) : C(0);
            sum = sum * factor + sum_of_warp(weight);
            most = now;
            for (C& each : sums) each *= factor;
          } else {
            weight *= sigmoid(weight) * h.share;
          }
          for (int other = 0; other < min(32, to - first); ++other) {
            const C by = __shfl_sync(~0U, weight, other);
#pragma unroll
            for (int c = 0; c < kOfLane; ++c)
              if (column + lane + 32 * c < args.v_width)
                sums[c] +=
                    by * static_cast<C>(h.at.v[(first + other) * h.at.v_step + column + lane + 32 * c]);
          }
        }
      });
      const C by = !softmax ? C(1) : sum > C(0) ? C(1) / sum : C(0);
      const std::int64_t to = args.out_at(piece.row, h.head) + i * h.at.out_step;
      for (int c = 0; c < kOfLane; ++c)
        if (column + lane + 32 * c < args.v_width)
          put<C, T>(args.results[0], args.are_halves[0], to + column + lane + 32 * c, by * sums[c]);
      if (softmax && column == 0 && lane == 0)
        args.keep_sums(
            piece.row, h.head, i,
            sum > C(0) ? KeptSums<C>{most, log(sum)} : KeptSums<C>{0, std::numeric_limits<C>::infinity()});
    }
}

template <class T, class Args>
__global__ void __launch_bounds__(kPlainThreads)
    plain_query_gradient(const __grid_constant__ Args args, bool softmax) {
  using C = Computed<T>;
  BlockPiece<typename Args::Row> piece;
  if (!args.template begin_piece<kPiece>(blockIdx.x, false, piece)) return;
  const PlainHead<T, Args> h(args, piece, softmax);
  const int lane = lane_of_thread();
  const int end = min(piece.first + kPiece, static_cast<int>(args.mask(piece.row).queries()));
  for (int i = piece.first + static_cast<int>(threadIdx.x) / 32; i < end; i += kPlainWarps)
    for (int column = 0; column < args.qk_width; column += kColumns) {
      C sums[kOfLane] = {};
      h.for_keys(i, [&](int from, int to) {
        for (int first = from; first < to; first += 32) {
          const C slope = first + lane < to ? h.pair(i, first + lane).slope : C(0);
          for (int other = 0; other < min(32, to - first); ++other) {
            const C by = __shfl_sync(~0U, slope, other);
#pragma unroll
            for (int c = 0; c < kOfLane; ++c)
              if (column + lane + 32 * c < args.qk_width)
                sums[c] +=
                    by * static_cast<C>(h.at.k[(first + other) * h.at.k_step + column + lane + 32 * c]);
          }
        }
      });
      const std::int64_t to = args.dq_at(piece.row, h.head) + i * args.dq_step();
      for (int c = 0; c < kOfLane; ++c)
        if (column + lane + 32 * c < args.qk_width)
          put<C, T>(args.results[0], args.are_halves[0], to + column + lane + 32 * c, h.scale * sums[c]);
    }
}

template <class T, class Args>
__global__ void __launch_bounds__(kPlainThreads)
    plain_key_gradient(const __grid_constant__ Args args, bool softmax) {
  using C = Computed<T>;
  BlockPiece<typename Args::Row> piece;
  if (!args.template begin_piece<kPiece>(blockIdx.x, true, piece)) return;
  const PlainHead<T, Args> h(args, piece, softmax);
  const auto mask = args.mask(piece.row);
  const int lane = lane_of_thread(), length = mask.queries();
  const int end = min(piece.first + kPiece, static_cast<int>(mask.all_keys()));
  for (int j = piece.first + static_cast<int>(threadIdx.x) / 32; j < end; j += kPlainWarps)
    for (int column = 0; column < max(args.qk_width, args.v_width); column += kColumns) {
      C of_k[kOfLane] = {}, of_v[kOfLane] = {};
      for (int first = 0; first < length; first += 32) {
        if (!mask.any(first, min(first + 32, length), j, j + 1)) continue;
        typename PlainHead<T, Args>::Pair pair{};
        if (first + lane < length && mask.sees(first + lane, j)) pair = h.pair(first + lane, j);
        for (int other = 0; other < min(32, length - first); ++other) {
          const C weight = __shfl_sync(~0U, pair.weight, other), slope = __shfl_sync(~0U, pair.slope, other);
#pragma unroll
          for (int c = 0; c < kOfLane; ++c) {
            const int at = column + lane + 32 * c;
            if (at < args.qk_width)
              of_k[c] += slope * static_cast<C>(h.at.q[(first + other) * h.at.q_step + at]);
            if (at < args.v_width)
              of_v[c] += weight * static_cast<C>(h.at.d_out[(first + other) * h.at.out_step + at]);
          }
        }
      }
      for (int c = 0; c < kOfLane; ++c) {
        const int at = column + lane + 32 * c;
        if (at < args.qk_width)
          put<C, T>(args.results[1], args.are_halves[1],
                    args.dk_at(piece.row, h.head) + j * args.dk_step() + at, h.scale * of_k[c]);
        if (at < args.v_width)
          put<C, T>(args.results[2], args.are_halves[2],
                    args.dv_at(piece.row, h.head) + j * args.dv_step() + at, of_v[c]);
      }
    }
}

/// A thread for each number of the mask, which rows and heads share.
template <class T>
__global__ void __launch_bounds__(kThreads)
    plain_mask_gradient(const __grid_constant__ DenseArgs args, Computed<T>* d_mask, std::int64_t numbers) {
  const int queries = args.rules.queries(), keys = args.rules.all_keys();
  const bool of_head = args.at_mask.head != 0, of_row = args.at_mask.outer != 0;
  for (std::int64_t at = grid_index(); at < numbers; at += grid_size()) {
    const int j = static_cast<int>(at % keys), i = static_cast<int>(at / keys % queries);
    const std::int64_t group = at / keys / queries;
    const int head = of_head ? static_cast<int>(group % args.heads) : 0;
    const std::int64_t row = of_row ? group / (of_head ? args.heads : 1) : 0;
    Computed<T> sum = 0;
    for (std::int64_t o = row; args.rules.sees(i, j) && o < (of_row ? row + 1 : args.outer); ++o)
      for (int h = head; h < (of_head ? head + 1 : args.heads); ++h)
        sum += PlainHead<T, DenseArgs>(args, {{o}, 0, h}, true).pair(i, j).slope;
    d_mask[at] = sum;
  }
}

constexpr int kSliceLanes = 32;

/// A block for 32 numbers, whose warps have a part of the slices each.
__global__ void __launch_bounds__(32 * kSliceLanes)
    add_slices_kernel(const float* sums, float* to, std::int64_t numbers, int slices) {
  __shared__ float parts[kSliceLanes][32];
  const std::int64_t at = std::int64_t{blockIdx.x} * 32 + threadIdx.x;
  float sum = 0;
  for (int s = static_cast<int>(threadIdx.y); at < numbers && s < slices; s += kSliceLanes)
    sum += sums[s * numbers + at];
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || at >= numbers) return;
  for (int part = 1; part < kSliceLanes; ++part) sum += parts[part][threadIdx.x];
  to[at] = sum;
}

/// A warp for each row.
template <class T>
__global__ void __launch_bounds__(kThreads) row_dots_kernel(const Computed<T>* output, const T* d_output,
                                                            Computed<T>* dots, std::int64_t rows, int width) {
  const int lane = lane_of_thread();
  for (std::int64_t r = grid_index() / 32; r < rows; r += grid_size() / 32) {
    Computed<T> sum = 0;
    for (int c = lane; c < width; c += 32)
      sum += output[r * width + c] * static_cast<Computed<T>>(d_output[r * width + c]);
    sum = sum_of_warp(sum);
    if (lane == 0) dots[r] = sum;
  }
}

/// f.operator()<T>().
template <class F>
decltype(auto) with_values(DType dtype, const F& f) {
  if (dtype == DType::BFloat16) return f.template operator()<BFloat16>();
  if (dtype == DType::Float16) return f.template operator()<Float16>();
  return with_float("braid.RaggedAttention", dtype, f);
}

template <class T, class Args>
void forward(const Args& args, bool softmax, StreamRef stream) {
  const unsigned blocks = args.blocks(kPiece, false);
  if (blocks > 0) launch(plain_forward<T, Args>, blocks, kPlainThreads, 0, stream, args, softmax);
}
template <class T, class Args>
void backward(const Args& args, bool softmax, StreamRef stream) {
  const unsigned of_queries = args.blocks(kPiece, false), of_keys = args.blocks(kPiece, true);
  if (of_queries > 0)
    launch(plain_query_gradient<T, Args>, of_queries, kPlainThreads, 0, stream, args, softmax);
  if (of_keys > 0) launch(plain_key_gradient<T, Args>, of_keys, kPlainThreads, 0, stream, args, softmax);
}

}  // namespace

template <class Args>
KernelsOf<Args> plain_kernels(DType dtype, bool softmax) {
  return with_values(dtype, [&]<class T>() -> KernelsOf<Args> {
    if (softmax)
      return {[](const Args& args, StreamRef stream) { forward<T>(args, true, stream); },
              [](const Args& args, StreamRef stream) { backward<T>(args, true, stream); }, 0};
    return {[](const Args& args, StreamRef stream) { forward<T>(args, false, stream); },
            [](const Args& args, StreamRef stream) { backward<T>(args, false, stream); }, 0};
  });
}

template KernelsOf<RaggedArgs> plain_kernels<RaggedArgs>(DType, bool);
template KernelsOf<DenseArgs> plain_kernels<DenseArgs>(DType, bool);

std::int32_t mask_slices(const DenseArgs& args) {
  constexpr std::int64_t kRoom = 128 * 512, kMostOfUnit = 128 * 16;  // threads, blocks
  const std::int64_t threads = std::max(args.rules.count, 16) * 2,
                     groups = std::max<std::int64_t>(args.mask_groups(), 1);
  const std::int64_t sharing = std::max<std::int64_t>(args.heads * args.outer / groups, 1);
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(std::min(kRoom / threads, kMostOfUnit) / groups, 1, sharing));
}

void add_slices(const DenseArgs& args, float* to, std::int64_t numbers, StreamRef stream) {
  if (numbers == 0) return;
  launch(add_slices_kernel, checked_blocks((numbers + 31) / 32), dim3(32, kSliceLanes), 0, stream,
         static_cast<const float*>(args.mask_sums), to, numbers, args.slices);
}

void mask_gradient(DType dtype, const DenseArgs& args, void* d_mask, std::int64_t numbers, StreamRef stream) {
  if (numbers == 0) return;
  with_values(dtype, [&]<class T>() {
    launch(plain_mask_gradient<T>, blocks_for(numbers), kThreads, 0, stream, args,
           static_cast<Computed<T>*>(d_mask), numbers);
  });
}

void row_dots(DType dtype, const AttentionArgs& args, const void* output, void* dots, std::int64_t rows,
              StreamRef stream) {
  if (rows == 0) return;
  with_values(dtype, [&]<class T>() {
    launch(row_dots_kernel<T>, blocks_for(rows * 32), kThreads, 0, stream,
           static_cast<const Computed<T>*>(output), static_cast<const T*>(args.d_out),
           static_cast<Computed<T>*>(dots), rows, args.v_width);
  });
}

}  // namespace braid::cuda::attention
