// A thread has four columns of an example and reads each vector once for kRows sums; the factors lie in
// shared memory.
#include "engine/ops/common/cuda/combine_vectors.h"

#include "engine/ops/common/cuda/launch.cuh"

namespace braid::cuda {
namespace {

constexpr int kRows = 8;

struct Arguments {
  Combination c;
  const float* factors[Combination::kMostTerms];
  const float* vectors[Combination::kMostTerms];
  float* out;
  int packs;  // of four columns
  int examples_of_block;
};

__global__ void __launch_bounds__(kThreads) combine_kernel(const __grid_constant__ Arguments s) {
  extern __shared__ float factors[];  // [example, term, row]
  const int rows = static_cast<int>(s.c.rows), of_example = s.c.terms * rows;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * s.examples_of_block; first < s.c.examples;
       first += static_cast<std::int64_t>(gridDim.x) * s.examples_of_block) {
    const int count =
        static_cast<int>(min(static_cast<std::int64_t>(s.examples_of_block), s.c.examples - first));
    for (int i = threadIdx.x; i < count * of_example; i += blockDim.x) {
      const int example = i / of_example, term = (i - example * of_example) / rows, row = i % rows;
      factors[i] = s.factors[term][(first + example) * s.c.factor_stride + row * s.c.factor_row];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count * s.packs; i += blockDim.x) {
      const int example = i / s.packs, column = (i - example * s.packs) * 4;
      const std::int64_t b = first + example;
      const std::int64_t at = b * s.c.vector_stride + column;
      for (int row = 0; row < rows; row += kRows) {
        float4 sums[kRows] = {};
#pragma unroll 4
        for (int term = 0; term < s.c.terms; ++term) {
          const float4 x = *reinterpret_cast<const float4*>(s.vectors[term] + at);
          const float* const f = factors + example * of_example + term * rows + row;
#pragma unroll
          for (int k = 0; k < kRows; ++k) {
            const float factor = row + k < rows ? f[k] : 0;
            sums[k].x += factor * x.x;
            sums[k].y += factor * x.y;
            sums[k].z += factor * x.z;
            sums[k].w += factor * x.w;
          }
        }
#pragma unroll
        for (int k = 0; k < kRows; ++k)
          if (row + k < rows)
            *reinterpret_cast<float4*>(s.out + b * s.c.out_stride + (row + k) * s.c.out_row + column) =
                sums[k];
      }
    }
    __syncthreads();
  }
}

}  // namespace

bool Combination::is_supported() const {
  return examples > 0 && terms > 0 && terms <= kMostTerms && rows > 0 && columns > 0 &&
         rows <= kMostFactors / terms && columns < (std::int64_t{1} << 30) &&
         ((columns | vector_stride | out_stride | out_row) & 3) == 0;
}

void combine_vectors(const Combination& c, const CombinationArgs& args) {
  Arguments s{.c = c,
              .factors = {},
              .vectors = {},
              .out = args.out,
              .packs = static_cast<int>(c.columns / 4),
              .examples_of_block = 1};
  std::copy(args.factors.begin(), args.factors.end(), s.factors);
  std::copy(args.vectors.begin(), args.vectors.end(), s.vectors);
  const std::int64_t of_example = c.terms * c.rows;
  s.examples_of_block = static_cast<int>(std::max<std::int64_t>(
      1, std::min<std::int64_t>(kThreads / s.packs, Combination::kMostFactors / of_example)));
  const auto shared = static_cast<std::size_t>(s.examples_of_block * of_example) * sizeof(float);
  launch(combine_kernel, blocks_for(c.examples, s.examples_of_block), kThreads, shared, args.stream, s);
}

}  // namespace braid::cuda
