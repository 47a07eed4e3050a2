// Arrays of the current device, for tests. Thread rule: one thread.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "base/cuda/await.h"
#include "base/cuda/check.h"
#include "base/cuda/handles.h"
#include "base/stream_ref.h"
#include "tests/comm/communicator_conformance.h"

namespace braid::comm {

/// Complete when it returns: a copy from pageable memory may still be on its way behind cudaMemcpy().
inline void copy_to_device(void* to, const void* from, std::size_t bytes) {
  BRAID_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
  BRAID_CUDA_CHECK(cudaStreamSynchronize(cudaStreamLegacy));
}

/// An array in the memory of the current device.
class DeviceArray {
 public:
  DeviceArray(std::size_t count, float value) : count_(count) {
    BRAID_CUDA_CHECK(cudaMalloc(&memory_, count * sizeof(float)));
    write(std::vector<float>(count, value));
  }
  ~DeviceArray() { cudaFree(memory_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  float* get() const { return static_cast<float*>(memory_); }
  void write(const std::vector<float>& values) {
    copy_to_device(memory_, values.data(), count_ * sizeof(float));
  }
  std::vector<float> read() const {
    std::vector<float> values(count_);
    BRAID_CUDA_CHECK(cudaMemcpy(values.data(), memory_, count_ * sizeof(float), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  const std::size_t count_;
  void* memory_ = nullptr;
};

inline StreamRef ref(const cuda::Stream& stream) { return {StreamKind::Cuda, stream.get()}; }

inline void finish(const cuda::Stream& stream) {
  cuda::await_stream(stream.get(), conformance::soon(), "the test's stream");
}

}  // namespace braid::comm
