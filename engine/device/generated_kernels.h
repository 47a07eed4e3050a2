// Kernels that are generated for the calling thread's CUDA device: compiled by NVRTC, kept in the process and
// in the user's cache (kernel_cache.h). Thread rule: any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/device/kernel_cache.h"

namespace braid {

/// Machine code of each source, null where there is none, as `why` says then: there is no device or no NVRTC,
/// the compiler refuses it, or it took longer than kKernelsTimeout in all.
inline constexpr std::chrono::seconds kKernelsTimeout{60};
std::vector<KernelCache::Code> generated_kernels(std::span<const std::string> sources,
                                                 std::span<const char* const> options, std::string& why);

}  // namespace braid
