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

constexpr std::size_t kMostArguments = 64;

/// Code on the device, which stays while a kernel that was prepared from it does.
class LoadedKernel {
 public:
  explicit LoadedKernel(const std::string& code) {
    BRAID_CUDA_CHECK(cudaLibraryLoadData(&library_, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  }
  ~LoadedKernel() {
    if (library_) cudaLibraryUnload(library_);
  }
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;
  const void* function(const char* name) const {
    cudaKernel_t kernel = nullptr;
    BRAID_CUDA_CHECK(cudaLibraryGetKernel(&kernel, library_, name));
    return kernel;
  }

 private:
  cudaLibrary_t library_ = nullptr;
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
  made.scratch_bytes = source.scratch_bytes;
  const auto launch = [](const void* function, std::int64_t blocks, int threads, void** arguments,
                         StreamRef stream) {
    BRAID_CUDA_CHECK(cudaLaunchKernel(function, dim3(static_cast<unsigned>(blocks)),
                                      dim3(static_cast<unsigned>(threads)), arguments, 0,
                                      cuda::native(stream)));
  };
  const void* const region_kernel = kernel->function(fusion::kRegionKernel);
  const void* const columns_kernel =
      source.column_blocks > 0 ? kernel->function(fusion::kColumnsKernel) : nullptr;
  // Arguments: inputs, outputs, scratch; of the kernel of columns: scratch, outputs.
  made.run = [kernel, launch, region_kernel, columns_kernel, inputs = region.inputs.size(),
              outputs = region.outputs.size(), blocks = source.blocks, threads = source.threads,
              column_blocks = source.column_blocks,
              column_threads = source.column_threads](const KernelArgs& a) {
    void* arguments[kMostArguments + 1];
    void* scratch = a.scratch;
    for (std::size_t i = 0; i < inputs; ++i) arguments[i] = const_cast<void**>(&a.inputs[i]);
    for (std::size_t o = 0; o < outputs; ++o) arguments[inputs + o] = const_cast<void**>(&a.outputs[o]);
    arguments[inputs + outputs] = &scratch;
    launch(region_kernel, blocks, threads, arguments, a.stream);
    if (!columns_kernel) return;
    arguments[0] = &scratch;
    for (std::size_t o = 0; o < outputs; ++o) arguments[1 + o] = const_cast<void**>(&a.outputs[o]);
    launch(columns_kernel, column_blocks, column_threads, arguments, a.stream);
  };
  if (region.inputs.size() + region.outputs.size() > kMostArguments)
    c.fail("the region has too many inputs and outputs");
  if (region.rows * region.columns == 0) made.run = [](const KernelArgs&) {};
  return made;
}

}  // namespace

void register_fused_region_cuda(OpRegistry& registry) { registry.add_cuda("braid.Fused", prepare); }

}  // namespace braid
