// CUDA kernel of Bucketize: a binary search an element. The boundaries are put into device memory when the
// kernel is prepared.
#include <memory>

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/dispatch.h"

namespace braid {
namespace {

template <class T>
__global__ void bucketize_kernel(const T* x, const double* boundaries, std::int32_t count, std::int32_t* y,
                                 std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    const auto value = static_cast<double>(x[i]);
    std::int32_t low = 0, high = count;  // the first boundary above x; none is above NaN
    while (low < high) {
      const std::int32_t middle = (low + high) / 2;
      if (value < boundaries[middle])
        high = middle;
      else
        low = middle + 1;
    }
    y[i] = low;
  }
}

PreparedKernel prepare(const PrepareContext& c) {
  const std::int64_t n = c.outputs[0].shape.elements();
  const auto boundaries = c.attr("boundaries", std::vector<double>{});
  const auto count = static_cast<std::int32_t>(boundaries.size());
  std::shared_ptr<std::byte[]> table;
  if (count != 0) {
    const std::uint64_t bytes = boundaries.size() * sizeof(double);
    table = c.accelerator->allocate(bytes, "boundaries");
    c.accelerator->copy_now(table.get(), boundaries.data(), bytes);
  }
  return with_number("Bucketize", c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [=](const KernelArgs& a) {
      if (n != 0)
        cuda::launch(bucketize_kernel<T>, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, a.in<T>(0),
                     reinterpret_cast<const double*>(table.get()), count, a.out<std::int32_t>(0), n);
    };
    return kernel;
  });
}

}  // namespace

void register_bucketize_cuda(OpRegistry& registry) { registry.add_cuda("Bucketize", prepare); }

}  // namespace braid
