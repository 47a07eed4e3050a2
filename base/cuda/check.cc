#include "base/cuda/check.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"

namespace braid::cuda {
namespace {

ErrorCode code_of(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return ErrorCode::OutOfMemory;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInvalidDevice:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
      return ErrorCode::InvalidArgument;
    default:
      return ErrorCode::DeviceError;
  }
}

}  // namespace

void fail(cudaError_t error, const char* call, const char* file, int line) {
  cudaGetLastError();  // an error that is not sticky must not be seen by the next call
  int device = -1;
  cudaGetDevice(&device);
  throw_error(code_of(error),
              fmt::format("CUDA device {}: {} ({}) in {} at {}:{}", device, cudaGetErrorString(error),
                          cudaGetErrorName(error), call, file, line));
}

void log_failure(cudaError_t error, const char* call) noexcept {
  if (error == cudaSuccess || error == cudaErrorCudartUnloading) return;
  log_error("CUDA: {} in {}", cudaGetErrorString(error), call);
}

}  // namespace braid::cuda
