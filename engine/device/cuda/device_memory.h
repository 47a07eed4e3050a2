// The memory of one CUDA device: a stream-ordered pool that all programs, variables and kernels of the
// process take from, with a limit and a list of holders by purpose. Memory grows with what is asked for and
// goes back to the device when it is freed; with `up_front` the pool takes all of the limit at once and keeps
// it, so that nobody else can have it later. Thread rule: any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/cuda/handles.h"
#include "engine/device/accelerator.h"

namespace braid::cuda {

void destroy_pool(cudaMemPool_t pool) noexcept;

class DeviceMemory : public std::enable_shared_from_this<DeviceMemory> {
 public:
  /// A limit of 0 is what the device has, and with `memory_up_front` nine tenths of what is free on it now.
  /// Throws: OutOfMemory when that is to be taken and the device has less than the limit free.
  explicit DeviceMemory(const AcceleratorOptions& options);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// 256-byte aligned, not zeroed, ready for every stream. The pool outlives it; freeing waits for the
  /// device, and a device that does not answer keeps it. Throws: OutOfMemory with the bytes, the purpose,
  /// what is free or the limit, and the largest holders.
  std::shared_ptr<std::byte[]> allocate(std::uint64_t bytes, const std::string& purpose);
  std::uint64_t in_use() const;

 private:
  void share_with_peers() const;
  void* take(std::uint64_t bytes);  // null: there is not as much
  void give_back(void* memory) noexcept;
  void book(std::uint64_t bytes, const std::string& purpose);
  void unbook(std::uint64_t bytes, const std::string& purpose);
  [[noreturn]] void refuse(std::uint64_t bytes, const std::string& purpose, const std::string& why) const;
  std::string free_bytes() const;

  const int device_;
  const std::uint64_t limit_;
  const std::chrono::milliseconds wait_timeout_;
  std::atomic<bool> silent_{false};  // the device did not answer when memory was given back
  Owned<cudaMemPool_t, destroy_pool> pool_;
  Stream stream_;  // on which memory is taken and given back
  mutable std::mutex mu_;
  std::uint64_t in_use_ = 0;                      // guarded by mu_
  std::map<std::string, std::uint64_t> holders_;  // guarded by mu_
};

}  // namespace braid::cuda
