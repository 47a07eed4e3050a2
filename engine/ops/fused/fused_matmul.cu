// CUDA kernel of braid.FusedMatMul: one cuBLASLt product, or a strided batch of them, with bias and ReLU in
// its epilogue. Without elements to sum over it stays on the CPU.
#include "engine/ops/common/cuda/gemm.h"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/halves.h"

namespace braid {
namespace {

PreparedKernel prepare(const PrepareContext& c) {
  const Shape &a = c.inputs[0].shape, &b = c.inputs[1].shape, &y = c.outputs[0].shape;
  cuda::Gemm g;
  g.transpose_a = c.attr<bool>("transpose_a", false);
  g.transpose_b = c.attr<bool>("transpose_b", false);
  const bool joined = y.rank() == 3 && c.attr<bool>("joined", false);
  g.m = y[joined ? 0 : y.rank() - 2];
  g.n = y[y.rank() - 1];
  g.k = a[a.rank() - (g.transpose_a ? 2 : 1)];
  g.batch = y.rank() == 3 ? y[joined ? 1 : 0] : 1;
  g.stride_a = a.rank() == 3 ? g.m * g.k : 0;
  g.stride_b = b.rank() == 3 ? g.k * g.n : 0;
  g.stride_y = joined ? g.n : g.m * g.n;
  g.row_stride_y = joined ? g.batch * g.n : 0;
  g.stride_vector = c.inputs[2].shape.rank() == 2 ? g.n : 0;
  g.dtype = c.inputs[0].dtype;
  g.result = c.outputs[0].dtype;
  g.epilogue = c.attr<bool>("relu", false) ? cuda::Epilogue::BiasRelu : cuda::Epilogue::Bias;
  const auto bytes = static_cast<std::int64_t>(dtype_size(g.dtype));
  if (g.batch > 1 && (((g.stride_a | g.stride_b | g.stride_y) * bytes) % 16) != 0)
    g.alignment_bytes = static_cast<std::uint32_t>(bytes);
  return cuda::gemm_kernel(c, g);
}

}  // namespace

void register_fused_matmul_cuda(OpRegistry& registry) {
  cuda_takes_halves({"braid.FusedMatMul"});
  registry.add_cuda("braid.FusedMatMul", prepare, [](const Node& node, std::span<const OutputInfo> inputs) {
    const Shape& a = inputs[0].shape;
    return a[a.rank() - (node.attrs.get<bool>("transpose_a", false) ? 2 : 1)] > 0;
  });
}

}  // namespace braid
