// CUDA kernels of braid.Fused: generated (engine/fusion/cuda_source.h), compiled once, launched as any other.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <limits>
#include <vector>

#include "base/cuda/check.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/generated_kernels.h"
#include "engine/fusion/cuda_source.h"
#include "engine/ir/op.h"

namespace braid {
namespace {

// As the generated kernels have it (engine/fusion/cuda_prelude.h.in).
static_assert(offsetof(StepParams, step) == 0 && offsetof(StepParams, seed) == 16 &&
              sizeof(StepParams) == 24);
static_assert(offsetof(StepStatus, op) == 4 && offsetof(StepStatus, value) == 8 && sizeof(StepStatus) == 24 &&
              static_cast<int>(StatusCode::IndexOutOfRange) == 1);

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

/// A region's kernels, and what they are launched with.
struct RegionKernels {
  std::shared_ptr<const LoadedKernel> code;
  const void* region = nullptr;
  const void* columns = nullptr;  // null: no columns are summed
  std::int64_t blocks = 1, column_blocks = 1;
  int threads = 1, column_threads = 1;
  std::size_t inputs = 0, outputs = 0;
  std::vector<std::uint64_t> keys = {};  // a hash and a salt for each Uniform step
  bool gathers = false;                  // and may find that a row is not there

  void run(const KernelArgs& a) const {
    // Those of the kernel of columns are the scratch memory and the outputs.
    void* scratch = a.scratch;
    const StepParams* params = a.params;
    std::vector<void*> arguments, of_columns{&scratch};
    for (std::size_t i = 0; i < inputs; ++i) arguments.push_back(const_cast<void**>(&a.inputs[i]));
    for (std::size_t o = 0; o < outputs; ++o) {
      arguments.push_back(const_cast<void**>(&a.outputs[o]));
      of_columns.push_back(arguments.back());
    }
    if (columns) arguments.push_back(&scratch);
    if (!keys.empty()) arguments.push_back(&params);
    for (const std::uint64_t& key : keys) arguments.push_back(const_cast<std::uint64_t*>(&key));
    StepStatus* status = a.status;
    int op = a.op;
    if (gathers) arguments.insert(arguments.end(), {static_cast<void*>(&status), static_cast<void*>(&op)});
    launch(region, blocks, threads, arguments, a.stream);
    if (columns) launch(columns, column_blocks, column_threads, of_columns, a.stream);
  }

 private:
  static void launch(const void* function, std::int64_t blocks, int threads, std::vector<void*>& arguments,
                     StreamRef stream) {
    BRAID_CUDA_CHECK(cudaLaunchKernel(function, dim3(static_cast<unsigned>(blocks)),
                                      dim3(static_cast<unsigned>(threads)), arguments.data(), 0,
                                      cuda::native(stream)));
  }
};

PreparedKernel prepare(const PrepareContext& c) {
  const fusion::Region region = fusion::Region::parse(c.node.attrs.require<std::string>("program"));
  const fusion::CudaSource source = fusion::cuda_source(region);
  if (source.blocks > std::numeric_limits<int>::max()) c.fail("the region has too many elements");
  PreparedKernel made;
  made.scratch_bytes = source.scratch_bytes;
  made.run = [](const KernelArgs&) {};
  if (region.rows * region.columns == 0) return made;
  std::string why;
  const auto codes = generated_kernels({&source.text, 1}, source.options(), why);
  if (!codes[0]) c.fail("its kernel cannot be made: " + why);
  RegionKernels kernels{.code = std::make_shared<const LoadedKernel>(*codes[0]),
                        .blocks = source.blocks,
                        .column_blocks = source.column_blocks,
                        .threads = source.threads,
                        .column_threads = source.column_threads,
                        .inputs = region.inputs.size(),
                        .outputs = c.outputs.size(),
                        .gathers = region.gathers()};
  kernels.region = kernels.code->function(source.name.c_str());
  if (source.column_blocks > 0) kernels.columns = kernels.code->function(source.columns_name().c_str());
  for (const int value : region.uniforms()) {
    kernels.keys.push_back(region.step(value).bits);
    kernels.keys.push_back(region.step(value).salt);
  }
  made.run = [kernels = std::move(kernels)](const KernelArgs& a) { kernels.run(a); };
  return made;
}

}  // namespace

void register_fused_region_cuda(OpRegistry& registry) { registry.add_cuda("braid.Fused", prepare); }

}  // namespace braid
