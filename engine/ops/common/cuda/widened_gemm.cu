#include "engine/ops/common/cuda/widened_gemm.h"

#include <algorithm>
#include <utility>

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/half.h"
#include "engine/ops/common/halves.h"

namespace braid::cuda {
namespace {

/// Rows of a batch in memory, strides in elements.
struct Block {
  std::int64_t batch = 1, rows = 0, columns = 0, row_stride = 0, stride = 0;
  std::int64_t elements() const { return batch * rows * columns; }
};

/// From a block to dense memory, or back.
template <class From, class To, bool kToDense>
__global__ void __launch_bounds__(kThreads) convert_kernel(const From* from, To* to, const Block block) {
  const std::int64_t all = block.batch * block.rows * block.columns,
                     step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < all;
       i += step) {
    const std::int64_t column = i % block.columns, row = i / block.columns % block.rows;
    const std::int64_t at = i / block.columns / block.rows * block.stride + row * block.row_stride + column;
    to[kToDense ? i : at] = static_cast<To>(from[kToDense ? at : i]);
  }
}

template <class From, class To, bool kToDense>
void convert(const void* from, void* to, const Block& block, StreamRef stream) {
  constexpr std::int64_t kMostBlocks = 4096;
  const auto blocks = std::min((block.elements() + kThreads - 1) / kThreads, kMostBlocks);
  if (blocks == 0) return;
  launch(convert_kernel<From, To, kToDense>, static_cast<unsigned>(blocks), kThreads, 0, stream,
         static_cast<const From*>(from), static_cast<To*>(to), block);
}

void widen(DType half, const void* from, void* to, const Block& block, StreamRef stream) {
  if (half == DType::Float16)
    convert<Float16, float, true>(from, to, block, stream);
  else
    convert<BFloat16, float, true>(from, to, block, stream);
}
void narrow(DType half, const void* from, void* to, const Block& block, StreamRef stream) {
  if (half == DType::Float16)
    convert<float, Float16, false>(from, to, block, stream);
  else
    convert<float, BFloat16, false>(from, to, block, stream);
}

std::size_t bytes_of(const Block& block) {
  constexpr std::size_t kAlignment = 256;
  return (static_cast<std::size_t>(block.elements()) * sizeof(float) + kAlignment - 1) / kAlignment *
         kAlignment;
}

/// With a stride of 0 all of the batch have the first one.
Block block_of(std::int64_t batch, std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
               std::int64_t stride) {
  return {stride == 0 ? 1 : batch, rows, columns, row_stride == 0 ? columns : row_stride, stride};
}

}  // namespace

PreparedGemm prepare_widened_gemm(const PrepareContext& c, const Gemm& g) {
  const Block a = g.transpose_a ? block_of(g.batch, g.k, g.m, g.row_stride_a, g.stride_a)
                                : block_of(g.batch, g.m, g.k, g.row_stride_a, g.stride_a);
  const Block b =
      g.transpose_b ? block_of(g.batch, g.n, g.k, 0, g.stride_b) : block_of(g.batch, g.k, g.n, 0, g.stride_b);
  const bool rounds = is_half(g.result == DType::Invalid ? g.dtype : g.result);
  const Block y = block_of(g.batch, g.m, g.n, g.row_stride_y, g.stride_y);
  const bool has_vector = g.epilogue != Epilogue::None && g.epilogue != Epilogue::Relu;
  const Block vector = block_of(g.batch, 1, g.n, 0, g.stride_vector);

  Gemm wide = g;
  wide.dtype = DType::Float32;
  wide.result = DType::Invalid;
  wide.row_stride_a = 0;
  wide.stride_a = a.batch > 1 ? g.m * g.k : 0;
  wide.stride_b = b.batch > 1 ? g.k * g.n : 0;
  if (rounds) {
    wide.row_stride_y = 0;
    wide.stride_y = g.m * g.n;
    wide.stride_vector = vector.batch > 1 ? g.n : 0;
  }
  wide.alignment_bytes = g.batch > 1 || !rounds ? sizeof(float) : 16;
  const PreparedGemm product = prepare_gemm(c, wide);
  PreparedGemm prepared;
  prepared.scratch_bytes = bytes_of(a) + bytes_of(b) + (rounds ? bytes_of(y) : 0) +
                           (rounds && has_vector ? bytes_of(vector) : 0) + product.scratch_bytes;
  prepared.run = [=, half = g.dtype, gradient = g.epilogue == Epilogue::BiasGrad](const GemmArgs& args) {
    char* at = static_cast<char*>(args.scratch);
    const auto take = [&at](const Block& block) { return std::exchange(at, at + bytes_of(block)); };
    GemmArgs inside = args;
    void* const wide_a = take(a);
    void* const wide_b = take(b);
    inside.a = wide_a;
    inside.b = wide_b;
    widen(half, args.a, wide_a, a, args.stream);
    widen(half, args.b, wide_b, b, args.stream);
    if (rounds) inside.y = take(y);
    if (rounds && has_vector) {
      inside.vector = take(vector);
      if (!gradient) widen(half, args.vector, inside.vector, vector, args.stream);
    }
    inside.scratch = at;
    product.run(inside);
    if (!rounds) return;
    narrow(half, inside.y, args.y, y, args.stream);
    if (gradient) narrow(half, inside.vector, args.vector, vector, args.stream);
  };
  return prepared;
}

}  // namespace braid::cuda
