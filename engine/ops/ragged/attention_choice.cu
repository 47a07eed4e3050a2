// Which kernels with tensor cores a node of attention gets.
#include "engine/ops/common/halves.h"
#include "engine/ops/ragged/dense_args.cuh"

namespace braid::cuda::attention {
namespace {

int of_device(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  BRAID_CUDA_CHECK(cudaGetDevice(&device));
  BRAID_CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

template <class Args>
KernelsOf<Args> of_type(const PrepareContext& c, std::int64_t width, bool softmax) {
  const DType type = c.inputs[0].dtype;
  if (is_half(type) && of_device(cudaDevAttrComputeCapabilityMajor) == 9) {
    const KernelsOf<Args> groups = group_kernels<Args>(type, width, softmax);
    if (groups.forward) return groups;
  }
  if (type == DType::BFloat16) return bfloat16_kernels<Args>(width, softmax);
  if (type == DType::Float16) return float16_kernels<Args>(width, softmax);
  if (type != DType::Float32) return {};
  return c.accelerator->options().tf32 ? tf32_kernels<Args>(width, softmax)
                                       : float32_kernels<Args>(width, softmax);
}

}  // namespace

template <class Args>
KernelsOf<Args> kernels_with_tensor_cores(const PrepareContext& c, std::int64_t qk, std::int64_t v,
                                          bool softmax) {
  const std::int64_t pack = 16 / static_cast<std::int64_t>(dtype_size(c.inputs[0].dtype));
  if (qk % pack != 0 || v % pack != 0) return {};
  const KernelsOf<Args> tiles = of_type<Args>(c, std::max(qk, v), softmax);
  const auto shared = static_cast<std::size_t>(of_device(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  return tiles.shared_bytes > shared ? KernelsOf<Args>{} : tiles;
}

ShortKernels short_kernels(const PrepareContext& c, const braid::attention::DenseNode& node) {
  const DType type = c.inputs[0].dtype;
  const std::int64_t pack = 16 / static_cast<std::int64_t>(dtype_size(type)),
                     width = std::max(node.qk, node.v);
  if (node.qk % pack != 0 || node.v % pack != 0 || std::min(node.queries, node.keys) < 1 ||
      std::max(node.queries, node.keys) > kMostShort || node.heads_of_all() < 1)
    return {};
  ShortKernels kernels;
  if (type == DType::BFloat16) kernels.launch = bfloat16_short(width);
  if (type == DType::Float16) kernels.launch = float16_short(width);
  if (type == DType::Float32)
    kernels.launch = c.accelerator->options().tf32 ? tf32_short(width) : float32_short(width);
  kernels.shared = static_cast<std::size_t>(of_device(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  return kernels;
}

template KernelsOf<RaggedArgs> kernels_with_tensor_cores(const PrepareContext&, std::int64_t, std::int64_t,
                                                         bool);
template KernelsOf<DenseArgs> kernels_with_tensor_cores(const PrepareContext&, std::int64_t, std::int64_t,
                                                        bool);

}  // namespace braid::cuda::attention
