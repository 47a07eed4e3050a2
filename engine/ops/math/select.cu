// CUDA kernels of Select and SelectV2. Elements are moved, not looked at, so one kernel serves all types of a
// size.
#include "engine/ops/common/cuda/elementwise.cuh"
#include "engine/ops/math/select_shape.h"

namespace braid {
namespace {

template <class T>
__global__ void select_kernel(const bool* condition, const T* a, const T* b, T* y, std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) y[i] = condition[i] ? a[i] : b[i];
}

template <class T>
__global__ void broadcast_select_kernel(const bool* condition, const T* a, const T* b, T* y, std::int64_t n,
                                        cuda::DeviceBroadcast plan) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    std::int64_t at[3];
    plan.locate(i, at);
    y[i] = condition[at[0]] ? a[at[1]] : b[at[2]];
  }
}

template <class T>
PreparedKernel kernel_of(const PrepareContext& c, const Shape& condition) {
  const Shape &out = c.outputs[0].shape, &a = c.inputs[1].shape, &b = c.inputs[2].shape;
  const std::int64_t n = out.elements();
  PreparedKernel kernel;
  if (condition.elements() == n && a.elements() == n && b.elements() == n) {
    kernel.run = [n](const KernelArgs& args) {
      if (n != 0)
        cuda::launch(select_kernel<T>, cuda::blocks_for(n), cuda::kThreads, 0, args.stream, args.in<bool>(0),
                     args.in<T>(1), args.in<T>(2), args.out<T>(0), n);
    };
    return kernel;
  }
  cuda::DeviceBroadcast plan;
  if (!plan.from(BroadcastPlan({&condition, &a, &b}, out))) c.fail("broadcasts over too many axes");
  kernel.run = [n, plan](const KernelArgs& args) {
    if (n != 0)
      cuda::launch(broadcast_select_kernel<T>, cuda::blocks_for(n), cuda::kThreads, 0, args.stream,
                   args.in<bool>(0), args.in<T>(1), args.in<T>(2), args.out<T>(0), n, plan);
  };
  return kernel;
}

PreparedKernel prepare(const PrepareContext& c, bool v2) {
  const Shape condition = v2 ? c.inputs[0].shape : row_condition(c.inputs[0].shape, c.outputs[0].shape);
  switch (dtype_size(c.outputs[0].dtype)) {
    case 1:
      return kernel_of<std::uint8_t>(c, condition);
    case 2:
      return kernel_of<std::uint16_t>(c, condition);
    case 4:
      return kernel_of<std::uint32_t>(c, condition);
    case 8:
      return kernel_of<std::uint64_t>(c, condition);
    default:
      c.fail("has no CUDA kernel for " + std::string(dtype_name(c.outputs[0].dtype)));
  }
}

}  // namespace

void register_select_cuda(OpRegistry& registry) {
  for (const bool v2 : {false, true})
    registry.add_cuda(
        v2 ? "SelectV2" : "Select", [v2](const PrepareContext& c) { return prepare(c, v2); },
        [](const Node&, std::span<const OutputInfo> inputs) {
          const std::size_t size = dtype_size(inputs[1].dtype);
          return size == 1 || size == 2 || size == 4 || size == 8;
        });
}

}  // namespace braid
