// BRAID_CUDA_CHECK(call): throws when a CUDA runtime call fails, with the call, its place and the device.
// OutOfMemory for memory, InvalidArgument where there is no usable device or driver, else DeviceError.
// Thread rule: any thread.
#pragma once

#include <cuda_runtime_api.h>

#define BRAID_CUDA_CHECK(call)                                                                     \
  do {                                                                                             \
    const cudaError_t braid_error_ = (call);                                                       \
    if (braid_error_ != cudaSuccess) ::braid::cuda::fail(braid_error_, #call, __FILE__, __LINE__); \
  } while (false)

namespace braid::cuda {

[[noreturn]] void fail(cudaError_t error, const char* call, const char* file, int line);
/// The same without an exception, for destructors.
void log_failure(cudaError_t error, const char* call) noexcept;

}  // namespace braid::cuda
