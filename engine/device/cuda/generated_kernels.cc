#include "engine/device/generated_kernels.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "base/cuda/check.h"
#include "engine/device/accelerator.h"
#include "engine/device/nvrtc.h"

namespace braid {
namespace {

constexpr unsigned kMostThreads = 16;

/// The cache for an architecture and options, which lives as long as the process.
KernelCache& cache_of(const std::string& architecture, std::span<const char* const> options) {
  static std::mutex mutex;
  static auto* caches = new std::map<std::string, std::unique_ptr<KernelCache>>;
  std::string setting = architecture + " nvrtc " + Nvrtc::get().version();
  for (const char* option : options) setting += std::string(" ") + option;
  const std::lock_guard lock(mutex);
  std::unique_ptr<KernelCache>& cache = (*caches)[setting];
  if (!cache)
    cache = std::make_unique<KernelCache>(
        KernelCache::default_folder(), setting,
        [architecture, own = std::vector<const char*>(options.begin(), options.end())](
            const std::string& source) { return Nvrtc::get().compile(source, architecture, own); });
  return *cache;
}

}  // namespace

std::vector<KernelCache::Code> generated_kernels(std::span<const std::string> sources,
                                                 std::span<const char* const> options, std::string& why) {
  if (cuda_device_count() == 0)
    why = "there is no device";
  else
    why = Nvrtc::get().missing();
  if (!why.empty()) return std::vector<KernelCache::Code>(sources.size());
  int device = 0, major = 0, minor = 0;
  BRAID_CUDA_CHECK(cudaGetDevice(&device));
  BRAID_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  BRAID_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  const auto threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads));
  return cache_of(fmt::format("sm_{}{}", major, minor), options).get(sources, threads, kKernelsTimeout, why);
}

}  // namespace braid
