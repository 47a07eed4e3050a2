// Attention of few queries and keys (kMostShort of each) on tensor cores: a block has a whole head of a row,
// a warp sixteen queries of it and all their scores, which are computed once. Forwards softmax is of whole
// rows. Backwards weights and slopes pass through shared memory, from the warps that have queries to those
// that have keys, so one launch gives dq, dk and dv, and adds up the mask's gradient:
//
//   P = exp(S - max - log sum);  dP = d_out v^T;  dS = P (dP - sum of P dP over keys)
//   dq = scale dS k;  dk = scale dS^T q;  dv = P^T d_out;  d_mask = sum of dS over what shares the mask
//
// Of a mask that rows or heads share, a block takes a slice of them, one after the other, and keeps the sum
// in shared memory; slices are added up in order by a second launch. So equal inputs give equal bits.
#pragma once

#include "engine/ops/ragged/attention_blocks.cuh"
#include "engine/ops/ragged/attention_forward.cuh"
#include "engine/ops/ragged/dense_args.cuh"

namespace braid::cuda::attention {

/// Rows of whole tiles of 16.
__host__ __device__ constexpr int whole_tiles(int rows) { return (rows + 15) / 16 * 16; }

/// Blocks have a warp for each 16 queries. W: the most columns of a head; kKeys: the most keys.
template <class M, int W, int kKeys>
struct ShortBlock {
  using E = typename M::Element;
  static constexpr int kScores = kKeys / 8;
  static constexpr int kWide = kPitch<E, W>, kAcross = kPitch<E, kKeys>;
  static constexpr int kSums = kKeys + 4;  // of the mask's gradient: floats from a query to the next
  /// Of a thread: for what it holds, and no more, so that there is room for several blocks.
  static constexpr int kForwardRegisters = kKeys <= 32 ? 64 : kKeys <= 64 ? 96 : kKeys <= 96 ? 128 : 168;
  static constexpr int kBackwardRegisters = kKeys <= 32 ? 96 : kKeys <= 64 ? 128 : kKeys <= 96 ? 168 : 255;

  static std::size_t bytes(const DenseArgs& args, bool backward) {
    const auto queries = static_cast<std::size_t>(whole_tiles(args.rules.count)),
               keys = static_cast<std::size_t>(whole_tiles(args.rules.history));
    if (!backward) return (queries + 2 * keys) * kWide * sizeof(E);
    return 2 * ((queries + keys) * kWide + queries * kAcross) * sizeof(E) +
           (args.mask_sums ? queries * kSums * sizeof(float) : 0);
  }
};

/// A head of a row, and the mask's first number for it.
struct ShortPiece {
  BlockPiece<DenseArgs::Row> at;
  std::int64_t mask;
};
__device__ inline ShortPiece short_piece(const DenseArgs& args, std::int64_t outer, int head) {
  ShortPiece piece;
  piece.at.row.outer = outer;
  piece.at.head = head;
  piece.at.first = 0;
  piece.mask = args.at_mask.outer * outer + args.at_mask.head * head;
  return piece;
}

/// Rows of a head, and zeros behind them, into shared memory.
template <class M, int W>
__device__ void load_short(typename M::Element* to, const typename M::Element* from, std::int64_t step,
                           int width, int rows) {
  using E = typename M::Element;
  constexpr int kPacks = W / kPack<E>;
  const int padded = whole_tiles(rows);
  for (int i = static_cast<int>(threadIdx.x); i < padded * kPacks; i += static_cast<int>(blockDim.x)) {
    const int row = i / kPacks, column = i % kPacks * kPack<E>;
    const bool is_there = row < rows && column < width;
    copy_ahead(to + row * kPitch<E, W> + column, is_there ? from + row * step + column : from, is_there);
  }
}

/// scores[0][n] += 16 own rows times rows [8 n, ...) of other, for rows in front of `rows`.
template <class M, int W, int kScores>
__device__ void add_short_scores(Scores (&scores)[1][kScores], const typename M::Element* own, int row,
                                 const typename M::Element* other, int rows, int width) {
#pragma unroll
  for (int k = 0; k < W; k += M::kDepth) {
    if (k >= width) break;
    const typename M::A a = M::template load<W>(own, row, k);
#pragma unroll
    for (int n = 0; n < kScores; n += 2) {
      if (8 * n >= rows) break;
      M::multiply(scores[0][n], scores[0][n + 1], a, M::template load_transposed<W>(other, 8 * n, k));
    }
  }
}
/// sums += scores, of columns in front of `rows`, times the rows of other.
template <class M, int W, int kScores>
__device__ void add_short_weighted(Scores (&sums)[1][W / 8], const Scores (&scores)[1][kScores],
                                   const typename M::Element* other, int rows, int width) {
#pragma unroll
  for (int step = 0; step < kScores * 8 / M::kDepth; ++step) {
    if (step * M::kDepth >= rows) break;
    const typename M::A a = M::factor(scores[0], step);
#pragma unroll
    for (int n = 0; n < W / 8; n += 2) {
      if (8 * n >= width) break;
      M::multiply(sums[0][n], sums[0][n + 1], a, M::template load_across<W>(other, step * M::kDepth, 8 * n));
    }
  }
}
/// f(n, e, query, key) for this lane's scores of keys in front of `rows`.
template <int kScores, class F>
__device__ void for_short_scores(int query, int rows, const F& f) {
  const int key = lane_id() % 4 * 2;
#pragma unroll
  for (int n = 0; n < kScores; ++n) {
    if (8 * n >= rows) break;
#pragma unroll
    for (int e = 0; e < 4; ++e) f(n, e, query + 8 * (e / 2), key + 8 * n + e % 2);
  }
}

/// What the mask does to the score of a pair. REQUIRES: there is a mask, and the pair.
__device__ inline float short_masked(const DenseArgs& args, const ShortPiece& piece, int query, int key,
                                     float score) {
  return args.masked_at(
      piece.mask + query * static_cast<int>(args.at_mask.query) + key * static_cast<int>(args.at_mask.key),
      score);
}
__device__ inline bool is_short_hidden(const DenseArgs& args, const ShortPiece& piece, int query, int key) {
  return !args.seen[piece.mask + query * static_cast<int>(args.at_mask.query) +
                    key * static_cast<int>(args.at_mask.key)];
}
/// How many keys, from the first, queries in front of `end` see together, in whole tiles of 16.
__device__ inline int short_limit(const DenseArgs::Mask& mask, int end) {
  return whole_tiles(mask.keys(min(end, mask.queries()) - 1).to);
}

template <class M, int W, int kKeys>
__global__ void __maxnreg__((ShortBlock<M, W, kKeys>::kForwardRegisters))
    short_forward_kernel(const __grid_constant__ DenseArgs args) {
  using E = typename M::Element;
  using S = ShortBlock<M, W, kKeys>;
  extern __shared__ uint4 memory[];
  const auto mask = args.rules;
  const int length = mask.queries(), all_keys = mask.all_keys();
  const int head = static_cast<int>(blockIdx.x % static_cast<unsigned>(args.heads));
  const ShortPiece piece = short_piece(args, blockIdx.x / static_cast<unsigned>(args.heads), head);
  E* const queries = reinterpret_cast<E*>(memory);
  E* const keys = queries + whole_tiles(length) * S::kWide;
  E* const values = keys + whole_tiles(all_keys) * S::kWide;
  const Places<E> at(args, piece.at.row, head);
  load_short<M, W>(queries, at.q, at.q_step, args.qk_width, length);
  load_short<M, W>(keys, at.k, at.k_step, args.qk_width, all_keys);
  end_group_of_copies();
  load_short<M, W>(values, at.v, at.v_step, args.v_width, all_keys);
  end_group_of_copies();
  wait_for_copies<1>();
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x) / 32 * 16, query = row + lane_id() / 4;
  const int limit = short_limit(mask, row + 16);
  const Exponent exponent(args);
  Scores scores[1][S::kScores] = {};
  add_short_scores<M, W>(scores, queries, row, keys, limit, args.qk_width);
  const bool has_mask = args.has_mask();
  float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  for_short_scores<S::kScores>(query, limit, [&](int n, int e, int i, int j) {
    float& score = scores[0][n][e];
    if (i >= length || j >= mask.keys(i).to)
      score = -INFINITY;
    else
      score = exponent.scaled(has_mask ? short_masked(args, piece, i, j, score) : score);
    most[e / 2] = fmaxf(most[e / 2], score);
  });
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    most[half] = fmaxf(most[half], __shfl_xor_sync(~0U, most[half], 1));
    most[half] = fmaxf(most[half], __shfl_xor_sync(~0U, most[half], 2));
    if (most[half] == -INFINITY) most[half] = 0;
  }
  for_short_scores<S::kScores>(query, limit, [&](int n, int e, int, int) {
    float& score = scores[0][n][e];
    score = exp2f((score - most[e / 2]) * exponent.unit);
    sum[e / 2] += score;
  });
  float by[1][2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += __shfl_xor_sync(~0U, sum[half], 1);
    sum[half] += __shfl_xor_sync(~0U, sum[half], 2);
    by[0][half] = sum[half] > 0 ? 1 / sum[half] : sum[half];  // of scores that are no numbers: none
    const int i = query + 8 * half;
    if (i < length && lane_id() % 4 == 0)
      args.keep_sums(piece.at.row, head, i,
                     sum[half] == 0
                         ? KeptSums<float>{0, INFINITY}
                         : KeptSums<float>{most[half] * (exponent.unit == 1 ? kLn2 : 1.0F), logf(sum[half])});
  }
  wait_for_copies<0>();
  __syncthreads();
  Scores sums[1][W / 8] = {};
  add_short_weighted<M, W>(sums, scores, values, limit, args.v_width);
  store_rows<M, W, 1>(args.results[0], args.are_halves[0], sums, by, args.out_at(piece.at.row, head),
                      at.out_step, args.v_width, query, length);
}

/// The pieces of a block: those of its slice of what shares a number of the mask; else one.
struct ShortPieces {
  std::int64_t begin, end;
  int heads;           // that share the mask
  std::int64_t outer;  // of all pieces, where rows do not share the mask; -1: they do
  int head;            // the same

  __device__ explicit ShortPieces(const DenseArgs& args) {
    if (!args.mask_sums) {
      begin = blockIdx.x;
      end = begin + 1;
      heads = args.heads;
      outer = -1;
      head = 0;
      return;
    }
    const std::int64_t group = blockIdx.x / static_cast<unsigned>(args.slices),
                       slice = blockIdx.x % args.slices;
    const int group_heads = args.at_mask.head != 0 ? args.heads : 1;
    heads = args.heads / group_heads;
    head = static_cast<int>(group % group_heads);
    outer = args.at_mask.outer != 0 ? group / group_heads : -1;
    const std::int64_t all = heads * (outer < 0 ? args.outer : 1);
    begin = slice * all / args.slices;
    end = (slice + 1) * all / args.slices;
  }
  __device__ ShortPiece at(const DenseArgs& args, std::int64_t piece) const {
    return short_piece(args, outer < 0 ? piece / heads : outer, head + static_cast<int>(piece % heads));
  }
};

/// The queries' part of a piece: weights and slopes to shared memory, dq to memory.
template <class M, int W, int kKeys>
__device__ void short_query_part(const DenseArgs& args, const ShortPiece& piece,
                                 const typename M::Element* queries, const typename M::Element* gradients,
                                 const typename M::Element* keys, const typename M::Element* values,
                                 typename M::Element* weights, typename M::Element* slopes_to,
                                 float* mask_sums, bool is_first) {
  using S = ShortBlock<M, W, kKeys>;
  const auto mask = args.rules;
  const int length = mask.queries(), padded_keys = whole_tiles(mask.all_keys());
  const int row = static_cast<int>(threadIdx.x) / 32 * 16, query = row + lane_id() / 4;
  const int limit = short_limit(mask, row + 16);
  const Exponent exponent(args);
  Scores scores[1][S::kScores] = {}, slopes[1][S::kScores] = {};
  add_short_scores<M, W>(scores, queries, row, keys, limit, args.qk_width);
  add_short_scores<M, W>(slopes, gradients, row, values, limit, args.v_width);
  const bool has_mask = args.has_mask(), hides = args.hides();
  KeptSums<float> kept[2] = {{0, INFINITY}, {0, INFINITY}};
  float dot[2] = {0, 0};
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (query + 8 * half < length) {
      kept[half] = args.template kept_sums<float>(piece.at.row, piece.at.head, query + 8 * half);
      kept[half].log_sum *= kLog2E;
    }
  for_short_scores<S::kScores>(query, limit, [&](int n, int e, int i, int j) {
    float& score = scores[0][n][e];
    if (i >= length || j >= mask.keys(i).to) {
      score = slopes[0][n][e] = 0;
      return;
    }
    if (has_mask) score = short_masked(args, piece, i, j, score);
    score = exp2f(exponent.of(score, kept[e / 2].max) - kept[e / 2].log_sum);
    dot[e / 2] += score * slopes[0][n][e];
  });
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    dot[half] += __shfl_xor_sync(~0U, dot[half], 1);
    dot[half] += __shfl_xor_sync(~0U, dot[half], 2);
  }
  for_short_scores<S::kScores>(query, limit, [&](int n, int e, int i, int j) {
    float& slope = slopes[0][n][e];
    slope = scores[0][n][e] * (slope - dot[e / 2]);
    if (hides && i < length && j < mask.all_keys() && is_short_hidden(args, piece, i, j)) slope = 0;
  });
#pragma unroll
  for (int n = 0; n < S::kScores; ++n) {
    if (8 * n >= padded_keys) break;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = query + 8 * half, j = 8 * n + lane_id() % 4 * 2;
      const float x = slopes[0][n][2 * half], y = slopes[0][n][2 * half + 1];
      M::template put<kKeys>(weights, i, j, scores[0][n][2 * half], scores[0][n][2 * half + 1]);
      M::template put<kKeys>(slopes_to, i, j, x, y);
      if (!mask_sums) continue;
      float2* const sum = reinterpret_cast<float2*>(mask_sums + i * S::kSums + j);
      const float2 before = is_first ? make_float2(0, 0) : *sum;
      *sum = make_float2(before.x + x, before.y + y);
    }
  }
  Scores dq[1][W / 8] = {};
  add_short_weighted<M, W>(dq, slopes, keys, limit, args.qk_width);
  const float scale = static_cast<float>(args.scale), by[1][2] = {{scale, scale}};
  store_rows<M, W, 1>(args.results[0], args.are_halves[0], dq, by, args.dq_at(piece.at.row, piece.at.head),
                      args.dq_step(), args.qk_width, query, length);
}

/// The keys' part of a piece: dk and dv to memory.
template <class M, int W, int kKeys>
__device__ void short_key_part(const DenseArgs& args, const ShortPiece& piece,
                               const typename M::Element* queries, const typename M::Element* gradients,
                               const typename M::Element* weights, const typename M::Element* slopes) {
  const auto mask = args.rules;
  const int length = mask.queries(), all_keys = mask.all_keys();
  const float scale = static_cast<float>(args.scale);
  const float of_k[1][2] = {{scale, scale}}, of_v[1][2] = {{1, 1}};
  for (int first = static_cast<int>(threadIdx.x) / 32 * 16; first < all_keys;
       first += static_cast<int>(blockDim.x) / 2) {
    Scores dk[1][W / 8] = {}, dv[1][W / 8] = {};
    for (int row = 0; row < length; row += M::kDepth) {
      if (mask.keys(row + M::kDepth - 1).to <= first) continue;
      const typename M::A weight = M::template load_turned<kKeys>(weights, row, first);
      const typename M::A slope = M::template load_turned<kKeys>(slopes, row, first);
#pragma unroll
      for (int n = 0; n < W / 8; n += 2) {
        if (8 * n < args.v_width)
          M::multiply(dv[0][n], dv[0][n + 1], weight, M::template load_across<W>(gradients, row, 8 * n));
        if (8 * n < args.qk_width)
          M::multiply(dk[0][n], dk[0][n + 1], slope, M::template load_across<W>(queries, row, 8 * n));
      }
    }
    const int key = first + lane_id() / 4;
    store_rows<M, W, 1>(args.results[1], args.are_halves[1], dk, of_k,
                        args.dk_at(piece.at.row, piece.at.head), args.dk_step(), args.qk_width, key,
                        all_keys);
    store_rows<M, W, 1>(args.results[2], args.are_halves[2], dv, of_v,
                        args.dv_at(piece.at.row, piece.at.head), args.dv_step(), args.v_width, key, all_keys);
  }
}

template <class M, int W, int kKeys>
__global__ void __maxnreg__((ShortBlock<M, W, kKeys>::kBackwardRegisters))
    short_backward_kernel(const __grid_constant__ DenseArgs args) {
  using E = typename M::Element;
  using S = ShortBlock<M, W, kKeys>;
  extern __shared__ uint4 memory[];
  const int length = args.rules.queries(), all_keys = args.rules.all_keys();
  const int padded = whole_tiles(length), padded_keys = whole_tiles(all_keys);
  E* const queries = reinterpret_cast<E*>(memory);
  E* const gradients = queries + padded * S::kWide;
  E* const keys = gradients + padded * S::kWide;
  E* const values = keys + padded_keys * S::kWide;
  E* const weights = values + padded_keys * S::kWide;
  E* const slopes = weights + padded * S::kAcross;
  float* const mask_sums = args.mask_sums ? reinterpret_cast<float*>(slopes + padded * S::kAcross) : nullptr;
  const ShortPieces pieces(args);
  for (std::int64_t p = pieces.begin; p < pieces.end; ++p) {
    const ShortPiece piece = pieces.at(args, p);
    const Places<E> at(args, piece.at.row, piece.at.head);
    load_short<M, W>(queries, at.q, at.q_step, args.qk_width, length);
    load_short<M, W>(keys, at.k, at.k_step, args.qk_width, all_keys);
    load_short<M, W>(gradients, at.d_out, at.out_step, args.v_width, length);
    load_short<M, W>(values, at.v, at.v_step, args.v_width, all_keys);
    end_group_of_copies();
    wait_for_copies<0>();
    __syncthreads();
    short_query_part<M, W, kKeys>(args, piece, queries, gradients, keys, values, weights, slopes, mask_sums,
                                  p == pieces.begin);
    __syncthreads();
    short_key_part<M, W, kKeys>(args, piece, queries, gradients, weights, slopes);
    if (p + 1 < pieces.end) __syncthreads();
  }
  if (!mask_sums || pieces.begin == pieces.end) return;
  // Numbers of a slice lie one behind the other, [slice, group, query, key].
  const std::int64_t group = blockIdx.x / static_cast<unsigned>(args.slices),
                     slice = blockIdx.x % args.slices;
  const std::int64_t groups = gridDim.x / static_cast<unsigned>(args.slices);
  float* const to = args.mask_sums + (slice * groups + group) * length * all_keys;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < length * all_keys; i += static_cast<int>(blockDim.x))
    to[i] = mask_sums[i / all_keys * S::kSums + i % all_keys];
}

template <class M, int W, int kKeys>
bool launch_short(const DenseArgs& args, bool backward, std::size_t shared, StreamRef stream) {
  using S = ShortBlock<M, W, kKeys>;
  const std::size_t bytes = S::bytes(args, backward);
  if (bytes > shared) return false;
  const std::int64_t blocks =
      backward && args.mask_sums ? args.slices * args.mask_groups() : args.outer * args.heads;
  const auto kernel = backward ? short_backward_kernel<M, W, kKeys> : short_forward_kernel<M, W, kKeys>;
  // Every thread that gets here sets the same limit, so none disturbs another.
  BRAID_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
  launch(kernel, checked_blocks(blocks), 2 * whole_tiles(args.rules.count), bytes, stream, args);
  return true;
}

template <class M, int W>
bool launch_short_of_width(const DenseArgs& args, bool backward, std::size_t shared, StreamRef stream) {
  const int keys = args.rules.history;
  if (keys <= 32) return launch_short<M, W, 32>(args, backward, shared, stream);
  if (keys <= 64) return launch_short<M, W, 64>(args, backward, shared, stream);
  if (keys <= 96) return launch_short<M, W, 96>(args, backward, shared, stream);
  return launch_short<M, W, kMostShort>(args, backward, shared, stream);
}

template <class M>
ShortLaunch short_launch_of(std::int64_t width) {
  if (width <= 32) return launch_short_of_width<M, 32>;
  return width <= 64 ? launch_short_of_width<M, 64> : nullptr;
}

}  // namespace braid::cuda::attention
