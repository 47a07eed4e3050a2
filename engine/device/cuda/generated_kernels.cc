#include "engine/device/generated_kernels.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <thread>

#include "base/cuda/check.h"
#include "base/env.h"
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

/// Of the calling thread's device; where there is none, what plans are made for.
std::optional<std::string> architecture_here() {
  if (cuda_device_count() == 0) return env_string("BRAID_KERNEL_ARCHITECTURE");
  int device = 0, major = 0, minor = 0;
  BRAID_CUDA_CHECK(cudaGetDevice(&device));
  BRAID_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  BRAID_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return fmt::format("sm_{}{}", major, minor);
}

}  // namespace

std::vector<KernelCache::Code> generated_kernels(std::span<const std::string> sources,
                                                 std::span<const char* const> options, std::string& why) {
  const std::optional<std::string> architecture = architecture_here();
  why = architecture ? Nvrtc::get().missing() : "there is no device";
  if (!why.empty()) return std::vector<KernelCache::Code>(sources.size());
  const auto threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads));
  return cache_of(*architecture, options).get(sources, threads, kKernelsTimeout, why);
}

}  // namespace braid
