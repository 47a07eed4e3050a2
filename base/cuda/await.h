// Waits for CUDA's work that end at a deadline: the runtime's own do not. Thread rule: any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "base/wait_context.h"

namespace braid::cuda {

/// Until all that was enqueued on the stream is done. REQUIRES: the stream is not being captured.
/// Throws: DeadlineExceeded or Cancelled with `what` (the caller's, "cuda:0: a copy"), DeviceError.
void await_stream(cudaStream_t stream, const WaitContext& wait, std::string_view what);
/// Until all work of the device is done, on whatever stream. The runtime cannot be asked for that, so another
/// thread waits for it, and is left behind at the deadline. Throws: as await_stream.
void await_device(int device, const WaitContext& wait, std::string_view what);

}  // namespace braid::cuda
