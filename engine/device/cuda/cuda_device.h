// One CUDA device behind the Accelerator interface, and what CUDA kernels need of it when they are prepared:
// library handles and device properties. Thread rule: that of Accelerator.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>

#include "base/cuda/handles.h"
#include "engine/device/accelerator.h"
#include "engine/device/pinned_blocks.h"

namespace braid::cuda {

inline cudaStream_t native(StreamRef stream) { return static_cast<cudaStream_t>(stream.native); }

class DeviceMemory;  // engine/device/cuda/device_memory.h

class CudaDevice final : public Accelerator {
 public:
  explicit CudaDevice(const AcceleratorOptions& options);
  ~CudaDevice() override;

  std::string description() const override;
  void make_current() override;
  const AcceleratorOptions& options() const override { return options_; }
  std::shared_ptr<std::byte[]> allocate(std::uint64_t bytes, const std::string& purpose) override;
  std::shared_ptr<std::byte[]> allocate_pinned(std::uint64_t bytes, const std::string& purpose) override;
  bool is_pinned(const void* memory, std::uint64_t bytes) const override;
  std::uint64_t bytes_in_use() const override;
  void copy_now(void* to, const void* from, std::uint64_t bytes) override;
  void copy(void* to, const void* from, std::uint64_t bytes, StreamRef stream) override;
  void fill_zero(void* to, std::uint64_t bytes, StreamRef stream) override;
  StreamRef stream(const std::string& name, int priority) override;
  std::unique_ptr<DeviceEvent> make_event() override;
  void begin_capture(StreamRef stream) override;
  std::unique_ptr<DeviceGraph> end_capture(StreamRef stream) override;
  void abandon_capture(StreamRef stream) noexcept override;
  void push_range(const char* name) override;
  void pop_range() override;
  void synchronize(const WaitContext& wait) override;

  int ordinal() const { return options_.ordinal; }
  int multiprocessors() const { return properties_.multiProcessorCount; }
  const cudaDeviceProp& properties() const { return properties_; }
  cublasLtHandle_t blas() const { return blas_; }

 private:
  void await_copies(const char* what);

  const AcceleratorOptions options_;
  cudaDeviceProp properties_{};
  cublasLtHandle_t blas_ = nullptr;
  std::shared_ptr<DeviceMemory> memory_;
  const std::shared_ptr<PinnedBlocks> pinned_ = std::make_shared<PinnedBlocks>();
  Stream copies_;  // for copy_now() and zeroing
  mutable std::mutex mu_;
  std::map<std::string, Stream> streams_;  // guarded by mu_
};

/// The device that a kernel is prepared for. REQUIRES: it is a CUDA device.
inline CudaDevice& device_of(Accelerator* accelerator) { return *static_cast<CudaDevice*>(accelerator); }

}  // namespace braid::cuda
