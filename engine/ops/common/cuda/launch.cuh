// Launches of CUDA kernels. Kernels of this folder and the .cu files beside the ops follow these rules:
//   - a launch goes to KernelArgs::stream, never to a default stream, and neither allocates nor waits, so
//     it can be captured
//   - scratch memory is asked for in `prepare`
//   - sizes are int64; results do not depend on the order in which blocks run (no atomics on floats)
//   - pointers are read from KernelArgs at each run
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "base/cuda/check.h"
#include "base/stream_ref.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/ir/op.h"

namespace braid::cuda {

inline constexpr int kThreads = 256;

/// Blocks of kThreads that cover `items` in a grid-stride loop: at most a few waves over the device.
inline unsigned blocks_for(std::int64_t items, int threads = kThreads) {
  constexpr std::int64_t kMostBlocks = 132 * 16;
  return static_cast<unsigned>(std::clamp<std::int64_t>((items + threads - 1) / threads, 1, kMostBlocks));
}

/// kernel<<<grid, block, shared>>>(arguments...) on the stream. Throws: DeviceError.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared, StreamRef stream,
            Arguments... arguments) {
  kernel<<<grid, block, shared, native(stream)>>>(static_cast<Parameters>(arguments)...);
  BRAID_CUDA_CHECK(cudaGetLastError());
}

/// The first and the number of elements of a grid-stride loop.
__device__ inline std::int64_t grid_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t grid_size() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

/// Elements that are loaded and stored together.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};
/// As many as fit into 16 bytes.
template <class T>
inline constexpr int kPackOf = 16 / static_cast<int>(sizeof(T));
inline bool is_aligned16(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

/// Writes the step's first data error (engine/ir/op.h).
__device__ inline void report(StepStatus* status, int op, StatusCode code, std::int64_t value,
                              std::int64_t limit) {
  if (atomicCAS(&status->code, 0, static_cast<int>(code)) != 0) return;
  status->op = op;
  status->value = value;
  status->limit = limit;
}

}  // namespace braid::cuda
