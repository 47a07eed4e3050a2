#include "base/cuda/handles.h"

#include <algorithm>

#include "base/cuda/check.h"

namespace braid::cuda {

DeviceGuard::DeviceGuard(int device) {
  BRAID_CUDA_CHECK(cudaGetDevice(&previous_));
  if (previous_ != device) BRAID_CUDA_CHECK(cudaSetDevice(device));
}

DeviceGuard::~DeviceGuard() {
  int now = previous_;
  if (cudaGetDevice(&now) == cudaSuccess && now != previous_)
    log_failure(cudaSetDevice(previous_), "cudaSetDevice");
}

void destroy_stream(cudaStream_t stream) noexcept {
  log_failure(cudaStreamDestroy(stream), "cudaStreamDestroy");
}
void destroy_event(cudaEvent_t event) noexcept { log_failure(cudaEventDestroy(event), "cudaEventDestroy"); }
void destroy_graph(cudaGraph_t graph) noexcept { log_failure(cudaGraphDestroy(graph), "cudaGraphDestroy"); }
void destroy_graph_exec(cudaGraphExec_t graph) noexcept {
  log_failure(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
}

Stream make_stream(int priority) {
  int least = 0, greatest = 0;
  BRAID_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream = nullptr;
  BRAID_CUDA_CHECK(
      cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, std::clamp(priority, greatest, least)));
  return Stream(stream);
}

Event make_event() {
  cudaEvent_t event = nullptr;
  BRAID_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return Event(event);
}

Event make_timed_event() {
  cudaEvent_t event = nullptr;
  BRAID_CUDA_CHECK(cudaEventCreate(&event));
  return Event(event);
}

float elapsed_ms(const Event& begin, const Event& end) {
  float ms = 0;
  BRAID_CUDA_CHECK(cudaEventElapsedTime(&ms, begin.get(), end.get()));
  return ms;
}

PinnedMemory::PinnedMemory(std::size_t bytes) {
  BRAID_CUDA_CHECK(cudaHostAlloc(&memory_, std::max<std::size_t>(bytes, 1), cudaHostAllocPortable));
}

PinnedMemory::~PinnedMemory() {
  if (memory_) log_failure(cudaFreeHost(memory_), "cudaFreeHost");
}

}  // namespace braid::cuda
