// CUDA kernels of CheckNumerics: a copy that reports an element which is not finite. The step's status holds
// its position; who reads that finds the message in the node's attributes.
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/dispatch.h"

namespace braid {
namespace {

/// y may be x. `n` packs.
template <class T, int kCount>
__global__ void check_kernel(const T* x, T* y, std::int64_t n, StepStatus* status, int op) {
  using P = cuda::Pack<T, kCount>;
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    const P p = reinterpret_cast<const P*>(x)[i];
#pragma unroll
    for (int e = 0; e < kCount; ++e)
      if (!isfinite(p.at[e])) cuda::report(status, op, StatusCode::NotFinite, i * kCount + e, 0);
    if (x != y) reinterpret_cast<P*>(y)[i] = p;
  }
}

PreparedKernel prepare(const PrepareContext& c) {
  const std::int64_t n = c.outputs[0].shape.elements();
  return with_float("CheckNumerics", c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [n](const KernelArgs& a) {
      if (n == 0) return;
      constexpr int kCount = cuda::kPackOf<T>;
      const bool packed =
          n % kCount == 0 && cuda::is_aligned16(a.inputs[0]) && cuda::is_aligned16(a.outputs[0]);
      const std::int64_t items = packed ? n / kCount : n;
      cuda::launch(packed ? check_kernel<T, kCount> : check_kernel<T, 1>, cuda::blocks_for(items),
                   cuda::kThreads, 0, a.stream, a.in<T>(0), a.out<T>(0), items, a.status, a.op);
    };
    return kernel;
  });
}

}  // namespace

void register_check_numerics_cuda(OpRegistry& registry) {
  for (const char* name : {"CheckNumerics", "CheckNumericsV2"}) registry.add_cuda(name, prepare);
}

}  // namespace braid
