// Owners of CUDA handles. Streams are non-blocking and explicit: no default stream can be spelled with these.
// Move-only; destructors log what fails. Thread rule: an object belongs to one thread at a time; making one
// uses the calling thread's current device (DeviceGuard).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

namespace braid::cuda {

/// Makes `device` current on this thread and restores the one before.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
};

/// A handle and the function that destroys it.
template <class Handle, void (*Destroy)(Handle) noexcept>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_) Destroy(handle_);
  }
  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  Handle handle_ = nullptr;
};

void destroy_stream(cudaStream_t stream) noexcept;
void destroy_event(cudaEvent_t event) noexcept;
void destroy_graph(cudaGraph_t graph) noexcept;
void destroy_graph_exec(cudaGraphExec_t graph) noexcept;

using Stream = Owned<cudaStream_t, destroy_stream>;
using Event = Owned<cudaEvent_t, destroy_event>;
using Graph = Owned<cudaGraph_t, destroy_graph>;
using GraphExec = Owned<cudaGraphExec_t, destroy_graph_exec>;

/// A non-blocking stream. Lower priorities come first; 0 is the ordinary one, values out of range are
/// clamped.
Stream make_stream(int priority = 0);
/// Without timing: the cheap one, for order only.
Event make_event();
/// For elapsed_ms().
Event make_timed_event();
/// Milliseconds between two timed events that the device has passed.
float elapsed_ms(const Event& begin, const Event& end);

/// Page-locked host memory, usable from every device.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  /// Throws: OutOfMemory.
  explicit PinnedMemory(std::size_t bytes);
  PinnedMemory(PinnedMemory&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~PinnedMemory();
  std::byte* get() const { return static_cast<std::byte*>(memory_); }

 private:
  void* memory_ = nullptr;
};

}  // namespace braid::cuda
