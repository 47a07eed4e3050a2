// CUDA kernel of braid.ReduceToShapeOf: common/cuda/axis_reduce.h, or a copy.
#include "engine/device/accelerator.h"
#include "engine/ops/common/cuda/axis_reduce.h"
#include "engine/ops/common/cuda/half_sums.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/joined_axes.h"

namespace braid {
namespace {

PreparedKernel copy_kernel(const PrepareContext& c) {
  PreparedKernel kernel;
  const auto bytes =
      static_cast<std::uint64_t>(c.outputs[0].shape.elements()) * dtype_size(c.outputs[0].dtype);
  kernel.run = [bytes, device = c.accelerator](const KernelArgs& a) {
    if (bytes != 0 && a.outputs[0] != a.inputs[0]) device->copy(a.outputs[0], a.inputs[0], bytes, a.stream);
  };
  return kernel;
}

PreparedKernel prepare(const PrepareContext& c) {
  const Shape &from = c.inputs[0].shape, &to = c.inputs[1].shape;
  if (is_half(c.inputs[0].dtype)) return cuda::prepare_half_sum(c, from, repeated_axes(from, to), prepare);
  if (from.elements() == to.elements()) return copy_kernel(c);
  return with_number("braid.ReduceToShapeOf", c.inputs[0].dtype, [&]<class T>() {
    return cuda::prepare_reduce<reduce::Sum, T>(c, from, repeated_axes(from, to));
  });
}

}  // namespace

void register_reduce_to_shape_cuda(OpRegistry& registry) {
  cuda_takes_halves({"braid.ReduceToShapeOf"});
  registry.add_cuda("braid.ReduceToShapeOf", prepare, [](const Node&, std::span<const OutputInfo> inputs) {
    return cuda::reducible(inputs[0]);
  });
}

}  // namespace braid
