// Products of small tiles by a warp's tensor cores, from tiles in shared memory: float16 and bfloat16 (mma
// m16n8k16), and float32 as TF32 (m16n8k8), or as two TF32 numbers a factor, of whose four products the
// smallest is left out, so that sums are about as exact as those of float32.
//
// A multiplier M has kDepth, how many products it adds at once, and
//   load(tile, row, column)          rows [row, row + 16), columns [column, column + kDepth), as factor A
//   load_transposed(tile, row, ...)  rows [row, row + 16) are columns of factor B, which is kDepth deep
//   load_across(tile, row, column)   rows [row, row + kDepth) of factor B, and 16 of its columns
//   load_turned(tile, row, column)   rows [row, row + kDepth) of factor A turned: 16 columns from `column` on
//                                    are its rows; goes with load_across
//   factor(scores, step)             16 x kDepth of a product, as factor A of the next one
//   put(tile, row, column, x, y)     two numbers of a product, in columns `column` and the next
//   multiply(c, a, b)                c[16, 16] += a b
// Lane 4 g + t has rows g and g + 8 of a product's tile of 8 columns, in columns 2 t and 2 t + 1 (PTX ISA).
// Tiles have kPitch<W> elements a row, so that eight rows of 16 bytes lie in different banks.
#pragma once

#include <cstdint>

#include "engine/ops/ragged/tensor_core.cuh"

namespace braid::cuda::attention {

/// Rows g (0, 1) and g + 8 (2, 3) of 16, columns 2 t and 2 t + 1 of 8.
using Scores = float[4];

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x) & 31; }

template <class E>
constexpr int kPack = 16 / static_cast<int>(sizeof(E));  // elements of 16 bytes
template <class E, int W>
constexpr int kPitch = W + kPack<E>;

/// How tiles lie whose rows are padded.
template <class E>
struct PaddedTiles {
  template <int W, int kRows>
  static constexpr int kElements = kRows* kPitch<E, W>;
  /// Of 16 bytes.
  template <int W, int kRows>
  static __device__ int place(int row, int column) {
    return row * kPitch<E, W> + column;
  }
};

template <class E>
struct HalfTiles : PaddedTiles<E> {
  using Element = E;
  static constexpr int kDepth = 16;
  static constexpr bool kIsHalf = true;
  struct A {
    std::uint32_t at[4];
  };
  struct B {
    std::uint32_t at[4];  // two of each tile of 8 columns
  };

  template <int W>
  static __device__ A load(const E* tile, int row, int column) {
    const int lane = lane_id();
    A a;
    load_matrices<false>(a.at, tile + (row + lane % 16) * kPitch<E, W> + column + lane / 16 * 8);
    return a;
  }
  template <int W>
  static __device__ B load_transposed(const E* tile, int row, int column) {
    const int lane = lane_id();
    B b;
    load_matrices<false>(b.at,
                         tile + (row + lane % 8 + lane / 16 * 8) * kPitch<E, W> + column + lane / 8 % 2 * 8);
    return b;
  }
  template <int W>
  static __device__ B load_across(const E* tile, int row, int column) {
    const int lane = lane_id();
    B b;
    load_matrices<true>(b.at, tile + (row + lane % 16) * kPitch<E, W> + column + lane / 16 * 8);
    return b;
  }
  template <int W>
  static __device__ A load_turned(const E* tile, int row, int column) {
    const int lane = lane_id();
    A a;
    load_matrices<true>(a.at,
                        tile + (row + lane / 16 * 8 + lane % 8) * kPitch<E, W> + column + lane / 8 % 2 * 8);
    return a;
  }
  template <int W>
  static __device__ void put(E* tile, int row, int column, float x, float y) {
    *reinterpret_cast<std::uint32_t*>(tile + row * kPitch<E, W> + column) = pack_halves<E>(x, y);
  }
  template <int kTiles>
  static __device__ A factor(const Scores (&scores)[kTiles], int step) {
    const Scores &left = scores[2 * step], &right = scores[2 * step + 1];
    return {{pack_halves<E>(left[0], left[1]), pack_halves<E>(left[2], left[3]),
             pack_halves<E>(right[0], right[1]), pack_halves<E>(right[2], right[3])}};
  }
  static __device__ void multiply(Scores& left, Scores& right, const A& a, const B& b) {
    multiply_halves<E>(left, a.at, b.at[0], b.at[1]);
    multiply_halves<E>(right, a.at, b.at[2], b.at[3]);
  }
};

/// A float as TF32 numbers: the sum of two, or the nearest one.
template <bool kExact>
struct Tf32 {
  std::uint32_t high = 0, low = 0;

  Tf32() = default;
  __device__ explicit Tf32(float x) {
    if constexpr (kExact) {
      high = __float_as_uint(x) & 0xffffe000U;
      low = __float_as_uint(x - __uint_as_float(high));
    } else {
      high = nearest_tf32(x);
    }
  }
};

/// A product's columns 2 t and 2 t + 1 are taken as columns t and t + 4 of the next product's factor, and the
/// other factor's rows in the same order.
template <bool kExact>
struct FloatTiles : PaddedTiles<float> {
  using Element = float;
  static constexpr int kDepth = 8;
  static constexpr bool kIsHalf = false;
  using Number = Tf32<kExact>;
  struct A {
    Number at[4];
  };
  struct B {
    Number at[4];
  };

  template <int W>
  static __device__ A load(const float* tile, int row, int column) {
    const int g = lane_id() / 4, t = lane_id() % 4;
    const float* const at = tile + (row + g) * kPitch<float, W> + column + t;
    return {{Number(at[0]), Number(at[8 * kPitch<float, W>]), Number(at[4]),
             Number(at[8 * kPitch<float, W> + 4])}};
  }
  template <int W>
  static __device__ B load_transposed(const float* tile, int row, int column) {
    const int g = lane_id() / 4, t = lane_id() % 4;
    const float* const at = tile + (row + g) * kPitch<float, W> + column + t;
    return {{Number(at[0]), Number(at[4]), Number(at[8 * kPitch<float, W>]),
             Number(at[8 * kPitch<float, W> + 4])}};
  }
  template <int W>
  static __device__ B load_across(const float* tile, int row, int column) {
    const int g = lane_id() / 4, t = lane_id() % 4;
    const float* const at = tile + (row + 2 * t) * kPitch<float, W> + column + g;
    return {{Number(at[0]), Number(at[kPitch<float, W>]), Number(at[8]), Number(at[kPitch<float, W> + 8])}};
  }
  template <int W>
  static __device__ A load_turned(const float* tile, int row, int column) {
    const int g = lane_id() / 4, t = lane_id() % 4;
    const float* const at = tile + (row + 2 * t) * kPitch<float, W> + column + g;
    return {{Number(at[0]), Number(at[8]), Number(at[kPitch<float, W>]), Number(at[kPitch<float, W> + 8])}};
  }
  template <int W>
  static __device__ void put(float* tile, int row, int column, float x, float y) {
    *reinterpret_cast<float2*>(tile + row * kPitch<float, W> + column) = make_float2(x, y);
  }
  template <int kTiles>
  static __device__ A factor(const Scores (&scores)[kTiles], int step) {
    const Scores& c = scores[step];
    return {{Number(c[0]), Number(c[2]), Number(c[1]), Number(c[3])}};
  }
  static __device__ void multiply(Scores& left, Scores& right, const A& a, const B& b) {
    multiply(left, a, b.at[0], b.at[1]);
    multiply(right, a, b.at[2], b.at[3]);
  }

 private:
  static __device__ void multiply(Scores& c, const A& a, Number b0, Number b1) {
    if constexpr (kExact) {
      multiply_tf32(c, a.at[0].low, a.at[1].low, a.at[2].low, a.at[3].low, b0.high, b1.high);
      multiply_tf32(c, a.at[0].high, a.at[1].high, a.at[2].high, a.at[3].high, b0.low, b1.low);
    }
    multiply_tf32(c, a.at[0].high, a.at[1].high, a.at[2].high, a.at[3].high, b0.high, b1.high);
  }
};

/// Halves whose products groups of four warps make (sm_90a), from tiles of 64 columns side by side.
template <class E>
struct GroupTiles {
  using Element = E;
  static constexpr bool kIsHalf = true;
  template <int W, int kRows>
  static constexpr int kElements = kRows* W;
  template <int W, int kRows>
  static __device__ int place(int row, int column) {
    return column / 64 * kRows * 64 + row * 64 + (column % 64 / 8 ^ row % 8) * 8;
  }
};

/// scores[m][n] += own rows [row + 16 m, ...) times rows [8 n, ...) of other, over W columns.
template <class M, int W, int kRows, int kTiles>
__device__ void add_scores(Scores (&scores)[kRows][kTiles], const typename M::Element* own, int row,
                           const typename M::Element* other) {
#pragma unroll
  for (int k = 0; k < W; k += M::kDepth) {
    typename M::A a[kRows];
#pragma unroll
    for (int m = 0; m < kRows; ++m) a[m] = M::template load<W>(own, row + 16 * m, k);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      const typename M::B b = M::template load_transposed<W>(other, 8 * n, k);
#pragma unroll
      for (int m = 0; m < kRows; ++m) M::multiply(scores[m][n], scores[m][n + 1], a[m], b);
    }
  }
}

/// sums[m] += scores[m] times the rows of other.
template <class M, int W, int kRows, int kTiles>
__device__ void add_weighted(Scores (&sums)[kRows][W / 8], const Scores (&scores)[kRows][kTiles],
                             const typename M::Element* other) {
#pragma unroll
  for (int step = 0; step < kTiles * 8 / M::kDepth; ++step) {
    typename M::A a[kRows];
#pragma unroll
    for (int m = 0; m < kRows; ++m) a[m] = M::factor(scores[m], step);
#pragma unroll
    for (int n = 0; n < W / 8; n += 2) {
      const typename M::B b = M::template load_across<W>(other, step * M::kDepth, 8 * n);
#pragma unroll
      for (int m = 0; m < kRows; ++m) M::multiply(sums[m][n], sums[m][n + 1], a[m], b);
    }
  }
}

}  // namespace braid::cuda::attention
