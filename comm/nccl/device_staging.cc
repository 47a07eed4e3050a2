#include "comm/nccl/device_staging.h"

#include <algorithm>

#include "base/cuda/await.h"
#include "base/cuda/check.h"

namespace braid::comm {
namespace {

constexpr std::size_t kLeastBytes = 4096;

}  // namespace

DeviceStaging::DeviceStaging(int device) : device_(device) {
  const cuda::DeviceGuard guard(device);
  stream_ = cuda::make_stream();
  done_ = cuda::make_event();
}

DeviceStaging::~DeviceStaging() {
  cuda::log_failure(cudaSetDevice(device_), "cudaSetDevice");
  for (const Block& block : {in_, out_})
    if (block.memory) cuda::log_failure(cudaFreeAsync(block.memory, stream_.get()), "cudaFreeAsync");
}

void* DeviceStaging::grow(Block& block, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (bytes <= block.bytes) return block.memory;
  if (block.memory) {
    void* old = block.memory;
    block = {};
    BRAID_CUDA_CHECK(cudaFreeAsync(old, stream_.get()));
  }
  const std::size_t size = std::max(bytes, kLeastBytes);
  BRAID_CUDA_CHECK(cudaMallocAsync(&block.memory, size, stream_.get()));
  block.bytes = size;
  return block.memory;
}

const void* DeviceStaging::bring(const void* data, std::size_t bytes) {
  void* memory = grow(in_, bytes);
  if (bytes > 0) BRAID_CUDA_CHECK(cudaMemcpyAsync(memory, data, bytes, cudaMemcpyDefault, stream_.get()));
  return memory;
}

void* DeviceStaging::room(std::size_t bytes) { return grow(out_, bytes); }

void DeviceStaging::mark() { BRAID_CUDA_CHECK(cudaEventRecord(done_.get(), stream_.get())); }

bool DeviceStaging::reached() const {
  const cudaError_t status = cudaEventQuery(done_.get());
  if (status == cudaErrorNotReady) return false;
  BRAID_CUDA_CHECK(status);
  return true;
}

void DeviceStaging::take(void* data, std::size_t bytes, const WaitContext& wait) {
  if (bytes > 0)
    BRAID_CUDA_CHECK(cudaMemcpyAsync(data, out_.memory, bytes, cudaMemcpyDefault, stream_.get()));
  cuda::await_stream(stream_.get(), wait, "the copy of a result to the host");
}

}  // namespace braid::comm
