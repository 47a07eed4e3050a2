// Stands in for engine/device/cuda/generated_kernels.cc where the CUDA Toolkit was not found. Apart from the
// rest of no_cuda.cc: programs of tests bring another (tests/engine/testing/assumed_kernels.cc).
#include "engine/device/generated_kernels.h"

namespace braid {

std::vector<KernelCache::Code> generated_kernels(std::span<const std::string> sources,
                                                 std::span<const char* const>, std::string& why) {
  why = "this build has no CUDA";
  return std::vector<KernelCache::Code>(sources.size());
}

}  // namespace braid
