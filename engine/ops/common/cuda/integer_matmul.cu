#include "engine/ops/common/cuda/integer_matmul.h"

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"

namespace braid::cuda {
namespace {

struct Product {
  std::int64_t m, n, k, batch;
  std::int64_t stride_a, stride_b, stride_y;      // from product to product
  std::int64_t a_row, a_column, b_row, b_column;  // of op(a) and op(b)
};

template <class W>
__global__ void integer_matmul_kernel(const W* a, const W* b, W* y, const __grid_constant__ Product p) {
  const std::int64_t outputs = p.batch * p.m * p.n;
  for (std::int64_t o = grid_index(); o < outputs; o += grid_size()) {
    const std::int64_t row = o / p.n, column = o - row * p.n;
    const std::int64_t product = row / p.m, i = row - product * p.m;
    const W* x = a + product * p.stride_a + i * p.a_row;
    const W* z = b + product * p.stride_b + column * p.b_column;
    W sum = 0;
#pragma unroll 4
    for (std::int64_t k = 0; k < p.k; ++k) sum += x[k * p.a_column] * z[k * p.b_row];
    y[product * p.stride_y + i * p.n + column] = sum;
  }
}

}  // namespace

PreparedGemm prepare_integer_matmul(const Gemm& g) {
  const Product p{.m = g.m,
                  .n = g.n,
                  .k = g.k,
                  .batch = g.batch,
                  .stride_a = g.stride_a,
                  .stride_b = g.stride_b,
                  .stride_y = g.stride_y,
                  .a_row = g.transpose_a ? 1 : g.k,
                  .a_column = g.transpose_a ? g.m : 1,
                  .b_row = g.transpose_b ? 1 : g.n,
                  .b_column = g.transpose_b ? g.k : 1};
  return with_index("MatMul", g.dtype, [&]<class T>() {
    using W = wrapping_t<T>;
    PreparedGemm prepared;
    prepared.run = [p](const GemmArgs& args) {
      launch(integer_matmul_kernel<W>, blocks_for(p.batch * p.m * p.n), kThreads, 0, args.stream,
             static_cast<const W*>(args.a), static_cast<const W*>(args.b), static_cast<W*>(args.y), p);
    };
    return prepared;
  });
}

}  // namespace braid::cuda
