// Device memory and a stream through which arrays of the host pass an operation of NCCL. Memory is taken and
// given back in stream order, since an ordinary allocation may wait for kernels that wait for other ranks.
// Thread rule: one thread at a time, with the device current.
#pragma once

#include <cstddef>

#include "base/cuda/handles.h"
#include "base/wait_context.h"

namespace braid::comm {

class DeviceStaging {
 public:
  explicit DeviceStaging(int device);
  ~DeviceStaging();
  DeviceStaging(const DeviceStaging&) = delete;
  DeviceStaging& operator=(const DeviceStaging&) = delete;

  cudaStream_t stream() const { return stream_.get(); }
  /// The device's copy of an array; null for none. Valid until the next bring().
  const void* bring(const void* data, std::size_t bytes);
  /// Where an operation may write; null for none. Valid until the next room().
  void* room(std::size_t bytes);
  /// What was enqueued on stream() so far ends with reached().
  void mark();
  bool reached() const;
  /// What is in room() now. Waits for the copy. Throws: DeadlineExceeded, Cancelled.
  void take(void* data, std::size_t bytes, const WaitContext& wait);

 private:
  struct Block {
    void* memory = nullptr;
    std::size_t bytes = 0;
  };
  void* grow(Block& block, std::size_t bytes);

  const int device_;
  cuda::Stream stream_;
  cuda::Event done_;
  Block in_, out_;
};

}  // namespace braid::comm
