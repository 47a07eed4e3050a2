#include "base/cuda/await.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/cuda/check.h"
#include "base/poll.h"

namespace braid::cuda {

void await_stream(cudaStream_t stream, const WaitContext& wait, std::string_view what) {
  cudaError_t status = cudaErrorNotReady;
  const bool over = poll([&] { return (status = cudaStreamQuery(stream)) != cudaErrorNotReady; }, wait);
  if (!over) wait.check(what);
  BRAID_CUDA_CHECK(status);
}

void await_device(int device, const WaitContext& wait, std::string_view what) {
  struct Shared {
    std::mutex mu;
    std::condition_variable_any changed;
    std::optional<cudaError_t> status;
  };
  const auto shared = std::make_shared<Shared>();
  std::thread([shared, device] {
    cudaError_t status = cudaSetDevice(device);
    if (status == cudaSuccess) status = cudaDeviceSynchronize();
    const std::lock_guard lock(shared->mu);
    shared->status = status;
    shared->changed.notify_all();
  }).detach();
  std::unique_lock lock(shared->mu);
  wait_on(shared->changed, lock, wait, what, [&] { return shared->status.has_value(); });
  BRAID_CUDA_CHECK(*shared->status);
}

}  // namespace braid::cuda
