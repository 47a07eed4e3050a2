#include <cstdint>

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/device_delay.h"

namespace braid {
namespace {

__device__ std::uint64_t nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void delay_kernel(std::uint64_t length) {
  for (const std::uint64_t begin = nanoseconds(); nanoseconds() - begin < length;) __nanosleep(500);
}

}  // namespace

void device_delay(const KernelArgs& args, double us) {
  if (us > 0) cuda::launch(delay_kernel, 1U, 1, 0, args.stream, static_cast<std::uint64_t>(us * 1e3));
}

}  // namespace braid
