// CUDA kernel of PadV2: the value everywhere, then the inner part. (Pad and its gradient are in box_ops.cu.)
#include "engine/ops/common/cuda/box_kernel.h"
#include "engine/ops/common/cuda/fill.cuh"
#include "engine/ops/common/cuda/unit.cuh"

namespace braid {
namespace {

PreparedKernel prepare(const PrepareContext& c) {
  BoxPlan plan = plans::pad(c);
  plan.zero_first = false;
  const std::int64_t n = c.outputs[0].shape.elements();
  PreparedKernel kernel;
  cuda::with_element_of(dtype_size(c.outputs[0].dtype), [&]<class U>() {
    kernel.run = [n, inner = cuda::box_kernel(c, plan)](const KernelArgs& a) {
      cuda::fill(a.stream, a.out<U>(0), n, U{}, a.in<U>(2));
      inner.run(a);
    };
  });
  return kernel;
}

}  // namespace

void register_pad_cuda(OpRegistry& registry) {
  registry.add_cuda("PadV2", prepare, [](const Node&, std::span<const OutputInfo> inputs) {
    return cuda::has_plain_inputs(inputs);
  });
}

}  // namespace braid
