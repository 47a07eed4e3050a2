// One value in all elements of an output, known when the kernel is prepared or read from device memory.
#pragma once

#include "engine/ops/common/cuda/launch.cuh"

namespace braid::cuda {

template <class T>
__global__ void fill_kernel(T* out, std::int64_t n, T value, const T* from) {
  const T x = from ? *from : value;
  constexpr int kCount = kPackOf<T>;
  // Whole packs first; what is before the first aligned element and after the last pack goes one by one.
  const auto address = reinterpret_cast<std::uintptr_t>(out);
  const std::int64_t before = min(static_cast<std::int64_t>((16 - address % 16) % 16 / sizeof(T)), n);
  const std::int64_t packs = (n - before) / kCount;
  Pack<T, kCount> pack;
#pragma unroll
  for (int e = 0; e < kCount; ++e) pack.at[e] = x;
  for (std::int64_t i = grid_index(); i < packs; i += grid_size())
    reinterpret_cast<Pack<T, kCount>*>(out + before)[i] = pack;
  const std::int64_t rest = n - packs * kCount;
  for (std::int64_t i = grid_index(); i < rest; i += grid_size())
    out[i < before ? i : packs * kCount + i] = x;
}

/// Fills with `value`, or with `*from` (device memory) where that is given.
template <class T>
void fill(StreamRef stream, T* out, std::int64_t n, T value, const T* from = nullptr) {
  if (n == 0) return;
  launch(fill_kernel<T>, blocks_for((n + kPackOf<T> - 1) / kPackOf<T>), kThreads, 0, stream, out, n, value,
         from);
}

/// A kernel that makes output 0 all zero bytes.
inline PreparedKernel zero_output(const PrepareContext& c) {
  const auto bytes =
      static_cast<std::uint64_t>(c.outputs[0].shape.elements()) * dtype_size(c.outputs[0].dtype);
  PreparedKernel kernel;
  kernel.run = [bytes, device = c.accelerator](const KernelArgs& a) {
    if (bytes != 0) device->fill_zero(a.outputs[0], bytes, a.stream);
  };
  return kernel;
}

}  // namespace braid::cuda
