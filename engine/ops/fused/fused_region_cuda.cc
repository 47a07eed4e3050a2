// CUDA kernels of braid.Fused: generated (engine/fusion/cuda_source.h), compiled once, launched as any other.
#include <cuda_runtime_api.h>

#include <limits>

#include "base/cuda/check.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/generated_kernels.h"
#include "engine/fusion/cuda_source.h"
#include "engine/ir/op.h"

namespace braid {
namespace {

/// Code on the device, which stays while a kernel that was prepared from it does.
class LoadedKernel {
 public:
  explicit LoadedKernel(const std::string& code) {
    BRAID_CUDA_CHECK(cudaLibraryLoadData(&library_, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    BRAID_CUDA_CHECK(cudaLibraryGetKernel(&kernel_, library_, fusion::kRegionKernel));
  }
  ~LoadedKernel() {
    if (library_) cudaLibraryUnload(library_);
  }
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;
  const void* function() const { return kernel_; }

 private:
  cudaLibrary_t library_ = nullptr;
  cudaKernel_t kernel_ = nullptr;
};

PreparedKernel prepare(const PrepareContext& c) {
  const fusion::Region region = fusion::Region::parse(c.node.attrs.require<std::string>("program"));
  const fusion::CudaSource source = fusion::cuda_source(region);
  if (source.blocks > std::numeric_limits<int>::max()) c.fail("the region has too many elements");
  std::string why;
  const auto codes = generated_kernels({&source.text, 1}, fusion::kRegionOptions, why);
  if (!codes[0]) c.fail("its kernel cannot be made: " + why);
  const auto kernel = std::make_shared<const LoadedKernel>(*codes[0]);
  PreparedKernel made;
  made.run = [kernel, inputs = region.inputs.size(), outputs = region.outputs.size(),
              grid = dim3(static_cast<unsigned>(source.blocks)),
              block = dim3(static_cast<unsigned>(source.threads))](const KernelArgs& a) {
    constexpr std::size_t kMostArguments = 64;
    void* arguments[kMostArguments];
    for (std::size_t i = 0; i < inputs; ++i) arguments[i] = const_cast<void**>(&a.inputs[i]);
    for (std::size_t o = 0; o < outputs; ++o) arguments[inputs + o] = const_cast<void**>(&a.outputs[o]);
    BRAID_CUDA_CHECK(cudaLaunchKernel(kernel->function(), grid, block, arguments, 0, cuda::native(a.stream)));
  };
  if (region.inputs.size() + region.outputs.size() > 64) c.fail("the region has too many inputs and outputs");
  if (region.rows * region.columns == 0) made.run = [](const KernelArgs&) {};
  return made;
}

}  // namespace

void register_fused_region_cuda(OpRegistry& registry) { registry.add_cuda("braid.Fused", prepare); }

}  // namespace braid
