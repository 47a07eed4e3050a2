// CUDA kernels of the tensors made of little: Fill, ZerosLike, OnesLike, Empty, Range and LinSpace.
#include <cstring>

#include "engine/ops/common/cuda/fill.cuh"
#include "engine/ops/common/cuda/row_groups.h"
#include "engine/ops/common/cuda/unit.cuh"
#include "engine/ops/common/dispatch.h"

namespace braid {
namespace {

PreparedKernel prepare_fill(const PrepareContext& c) {
  const std::int64_t n = c.outputs[0].shape.elements();
  return cuda::with_element_of(dtype_size(c.outputs[0].dtype), [&]<class U>() {
    PreparedKernel kernel;
    kernel.run = [n](const KernelArgs& a) { cuda::fill(a.stream, a.out<U>(0), n, U{}, a.in<U>(1)); };
    return kernel;
  });
}

PreparedKernel prepare_zeros(const PrepareContext& c) {
  const auto bytes =
      static_cast<std::uint64_t>(c.outputs[0].shape.elements()) * dtype_size(c.outputs[0].dtype);
  PreparedKernel kernel;
  kernel.run = [bytes, device = c.accelerator](const KernelArgs& a) {
    if (bytes != 0) device->fill_zero(a.outputs[0], bytes, a.stream);
  };
  return kernel;
}

PreparedKernel prepare_ones(const PrepareContext& c) {
  const std::int64_t n = c.outputs[0].shape.elements();
  std::uint64_t bits = 0;  // of the number 1, in the low bytes
  with_number_or_bool("OnesLike", c.outputs[0].dtype, [&]<class T>() {
    const T one{1};
    std::memcpy(&bits, &one, sizeof(one));
  });
  return cuda::with_element_of(dtype_size(c.outputs[0].dtype), [&]<class U>() {
    PreparedKernel kernel;
    kernel.run = [n, one = static_cast<U>(bits)](const KernelArgs& a) {
      cuda::fill(a.stream, a.out<U>(0), n, one);
    };
    return kernel;
  });
}

template <class T>
__global__ void range_kernel(T* out, std::int64_t n, const T* start, const T* delta) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size())
    out[i] = static_cast<T>(*start + static_cast<T>(i) * *delta);
}

PreparedKernel prepare_range(const PrepareContext& c) {
  const std::int64_t n = c.outputs[0].shape.elements();
  return with_number("Range", c.outputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [n](const KernelArgs& a) {
      if (n != 0)
        cuda::launch(range_kernel<T>, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, a.out<T>(0), n,
                     a.in<T>(0), a.in<T>(2));
    };
    return kernel;
  });
}

/// The last element is `stop` itself, not what rounding makes of it.
template <class T>
__global__ void lin_space_kernel(T* out, std::int64_t n, const T* start, const T* stop) {
  const T step = n > 1 ? (*stop - *start) / static_cast<T>(n - 1) : T(0);
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size())
    out[i] = i > 0 && i == n - 1 ? *stop : *start + static_cast<T>(i) * step;
}

PreparedKernel prepare_lin_space(const PrepareContext& c) {
  const std::int64_t n = c.outputs[0].shape[0];
  return with_float("LinSpace", c.outputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [n](const KernelArgs& a) {
      cuda::launch(lin_space_kernel<T>, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, a.out<T>(0), n,
                   a.in<T>(0), a.in<T>(1));
    };
    return kernel;
  });
}

bool is_number_or_bool(DType dtype) {
  return dtype_size(dtype) != 0 && dtype != DType::Float16 && dtype != DType::BFloat16;
}

}  // namespace

void register_fill_cuda(OpRegistry& registry) {
  registry.add_cuda("Fill", prepare_fill, [](const Node&, std::span<const OutputInfo> inputs) {
    return dtype_size(inputs[1].dtype) != 0;
  });
  registry.add_cuda("ZerosLike", prepare_zeros, [](const Node&, std::span<const OutputInfo> inputs) {
    return dtype_size(inputs[0].dtype) != 0;
  });
  registry.add_cuda("OnesLike", prepare_ones, [](const Node&, std::span<const OutputInfo> inputs) {
    return is_number_or_bool(inputs[0].dtype);
  });
  registry.add_cuda("Empty", prepare_zeros, [](const Node& node, std::span<const OutputInfo>) {
    return dtype_size(node.attrs.get<DType>("dtype", DType::Invalid)) != 0;
  });
  registry.add_cuda("Range", prepare_range, [](const Node&, std::span<const OutputInfo> inputs) {
    return cuda::is_row_type(inputs[0].dtype);
  });
  registry.add_cuda("LinSpace", prepare_lin_space);
}

}  // namespace braid
