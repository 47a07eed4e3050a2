// Attention without tensor cores, for heads of any width and for float64: a warp has a query, or for dk and
// dv a key, and its lanes the keys or queries that go with it, 32 at a time. Columns of results are added up
// kColumns at a time; scores are computed again for each such part. Also the sums that softmax's gradients
// begin with.
#include <limits>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/half.h"
#include "engine/ops/ragged/attention_args.cuh"

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
template <class T>
struct PlainHead {
  using C = Computed<T>;
  const AttentionArgs& args;
  Plan::Piece piece;
  int head;
  Places<T> at;
  C scale, share;
  bool softmax;

  __device__ PlainHead(const AttentionArgs& a, const Plan::Piece& p, int h, bool is_softmax)
      : args(a),
        piece(p),
        head(h),
        at(a, p.row, h),
        scale(static_cast<C>(a.scale)),
        share(static_cast<C>(a.share())),
        softmax(is_softmax) {}
  __device__ C score(int i, int j) const {
    return scale * dot<C>(at.q + i * at.qk_step, at.k + j * at.qk_step, args.qk_width);
  }
  struct Pair {
    C weight, slope;  // of dv; of dq and dk
  };
  /// Of a query and a key that it sees.
  __device__ Pair pair(int i, int j) const {
    const C s = score(i, j);
    const C d = dot<C>(at.d_out + i * at.v_step, at.v + j * at.v_step, args.v_width);
    if (softmax) {
      const std::int64_t kept = (piece.row.begin + i) * args.heads + head;
      const C weight = exp(s - static_cast<const C*>(args.log_sum)[kept]);
      return {weight, weight * (d - static_cast<const C*>(args.dots)[kept])};
    }
    const C of_s = sigmoid(s);
    return {s * of_s * share, d * share * of_s * (C(1) + s * (C(1) - of_s))};
  }
  /// f(first, end) for the keys that query i sees, in ranges.
  template <class F>
  __device__ void for_keys(int i, const F& f) const {
    const Mask::Range range = args.mask(piece.row).keys(i);
    f(range.from, range.to);
    if (range.self) f(i, i + 1);
  }
};

template <class T>
__global__ void __launch_bounds__(kPlainThreads)
    plain_forward(const __grid_constant__ AttentionArgs args, bool softmax) {
  using C = Computed<T>;
  Plan::Piece piece;
  int head;
  if (!piece_of_block<kPiece>(args, false, piece, head)) return;
  const PlainHead<T> h(args, piece, head, softmax);
  const int lane = lane_of_thread(), end = min(piece.first + kPiece, piece.row.length);
  for (int i = piece.first + static_cast<int>(threadIdx.x) / 32; i < end; i += kPlainWarps)
    for (int column = 0; column == 0 || column < args.v_width; column += kColumns) {
      C sums[kOfLane] = {}, sum = 0, most = -std::numeric_limits<C>::infinity();
      h.for_keys(i, [&](int from, int to) {
        for (int first = from; first < to; first += 32) {
          const bool is_there = first + lane < to;
          C weight = is_there ? h.score(i, first + lane) : C(0);
          if (softmax) {
            const C base = max_of_warp(is_there && weight > most ? weight : most);
            const C factor = exp(most - base);
            weight = is_there ? exp(weight - base) : C(0);
            sum = sum * factor + sum_of_warp(weight);
            most = base;
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
      const C by = softmax ? C(1) / sum : C(1);
      const std::int64_t to = args.v_at(piece.row.begin + i, head);
      for (int c = 0; c < kOfLane; ++c)
        if (column + lane + 32 * c < args.v_width)
          put<C, T>(args.results[0], args.are_halves[0], to + column + lane + 32 * c, by * sums[c]);
      if (softmax && column == 0 && lane == 0)
        static_cast<C*>(args.new_log_sum)[(piece.row.begin + i) * args.heads + head] = most + log(sum);
    }
}

template <class T>
__global__ void __launch_bounds__(kPlainThreads)
    plain_query_gradient(const __grid_constant__ AttentionArgs args, bool softmax) {
  using C = Computed<T>;
  Plan::Piece piece;
  int head;
  if (!piece_of_block<kPiece>(args, false, piece, head)) return;
  const PlainHead<T> h(args, piece, head, softmax);
  const int lane = lane_of_thread(), end = min(piece.first + kPiece, piece.row.length);
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
                    by * static_cast<C>(h.at.k[(first + other) * h.at.qk_step + column + lane + 32 * c]);
          }
        }
      });
      const std::int64_t to = args.qk_at(piece.row.begin + i, head);
      for (int c = 0; c < kOfLane; ++c)
        if (column + lane + 32 * c < args.qk_width)
          put<C, T>(args.results[0], args.are_halves[0], to + column + lane + 32 * c, h.scale * sums[c]);
    }
}

template <class T>
__global__ void __launch_bounds__(kPlainThreads)
    plain_key_gradient(const __grid_constant__ AttentionArgs args, bool softmax) {
  using C = Computed<T>;
  Plan::Piece piece;
  int head;
  if (!piece_of_block<kPiece>(args, true, piece, head)) return;
  const PlainHead<T> h(args, piece, head, softmax);
  const Mask mask = args.mask(piece.row);
  const int lane = lane_of_thread(), length = piece.row.length, end = min(piece.first + kPiece, length);
  for (int j = piece.first + static_cast<int>(threadIdx.x) / 32; j < end; j += kPlainWarps)
    for (int column = 0; column < max(args.qk_width, args.v_width); column += kColumns) {
      C of_k[kOfLane] = {}, of_v[kOfLane] = {};
      for (int first = 0; first < length; first += 32) {
        if (!mask.any(first, min(first + 32, length), j, j + 1)) continue;
        typename PlainHead<T>::Pair pair{};
        if (first + lane < length && mask.sees(first + lane, j)) pair = h.pair(first + lane, j);
        for (int other = 0; other < min(32, length - first); ++other) {
          const C weight = __shfl_sync(~0U, pair.weight, other), slope = __shfl_sync(~0U, pair.slope, other);
#pragma unroll
          for (int c = 0; c < kOfLane; ++c) {
            const int at = column + lane + 32 * c;
            if (at < args.qk_width)
              of_k[c] += slope * static_cast<C>(h.at.q[(first + other) * h.at.qk_step + at]);
            if (at < args.v_width)
              of_v[c] += weight * static_cast<C>(h.at.d_out[(first + other) * h.at.v_step + at]);
          }
        }
      }
      for (int c = 0; c < kOfLane; ++c) {
        const int at = column + lane + 32 * c;
        if (at < args.qk_width)
          put<C, T>(args.results[1], args.are_halves[1], args.qk_at(piece.row.begin + j, head) + at,
                    h.scale * of_k[c]);
        if (at < args.v_width)
          put<C, T>(args.results[2], args.are_halves[2], args.v_at(piece.row.begin + j, head) + at, of_v[c]);
      }
    }
}

/// A warp for each value and head.
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

template <class T, bool kSoftmax>
void forward(const AttentionArgs& args, std::int64_t plan_tiles, StreamRef stream) {
  if (plan_tiles == 0) return;
  launch(plain_forward<T>, blocks_of_pieces(plan_tiles, kPiece, args.heads), kPlainThreads, 0, stream, args,
         kSoftmax);
}
template <class T, bool kSoftmax>
void backward(const AttentionArgs& args, std::int64_t plan_tiles, StreamRef stream) {
  if (plan_tiles == 0) return;
  const unsigned blocks = blocks_of_pieces(plan_tiles, kPiece, args.heads);
  launch(plain_query_gradient<T>, blocks, kPlainThreads, 0, stream, args, kSoftmax);
  launch(plain_key_gradient<T>, blocks, kPlainThreads, 0, stream, args, kSoftmax);
}

}  // namespace

Kernels plain_kernels(DType dtype, bool softmax) {
  return with_values(dtype, [&]<class T>() -> Kernels {
    if (softmax) return {forward<T, true>, backward<T, true>, 0};
    return {forward<T, false>, backward<T, false>, 0};
  });
}

void row_dots(DType dtype, const AttentionArgs& args, const void* output, void* dots, std::int64_t values,
              StreamRef stream) {
  const std::int64_t rows = values * args.heads;
  if (rows == 0) return;
  with_values(dtype, [&]<class T>() {
    launch(row_dots_kernel<T>, blocks_for(rows * 32), kThreads, 0, stream,
           static_cast<const Computed<T>*>(output), static_cast<const T*>(args.d_out),
           static_cast<Computed<T>*>(dots), rows, args.v_width);
  });
}

}  // namespace braid::cuda::attention
