// A device beside the host, as the executor sees it: memory, streams, events, captured graphs, copies. The
// CUDA one is engine/device/cuda; a machine without it has none (no_cuda.cc), and nothing above this
// interface knows which it is.
//
// Memory is given back with its last reference. What a function enqueues runs in stream order; nothing here
// waits for the device unless it says so. Errors: OutOfMemory names bytes, device, purpose and the largest
// holders; DeviceError means that the device's context is lost. Thread rule: any thread; a stream, its
// events, captures and copies from one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/stream_ref.h"
#include "base/wait_context.h"

namespace braid {

struct AcceleratorOptions {
  int ordinal = 0;                 // among the visible devices
  std::uint64_t memory_limit = 0;  // bytes that may be held at once; 0: what the device has
  bool memory_up_front = false;    // the limit, or 0.9 of what is free, is taken at once and kept
  bool tf32 = true;                // float32 products may be computed with TF32 inputs
  bool measure_products = false;   // products take the fastest of some algorithms, measured when made
  /// How long what waits for the device without a deadline of its caller does so: memory that is taken or
  /// given back, copy_now().
  std::chrono::milliseconds wait_timeout{60000};
};

/// A point in the work of a stream.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  /// Everything enqueued on the stream so far is before the point.
  virtual void record(StreamRef stream) = 0;
  /// What is enqueued on the stream from now on comes after the point.
  virtual void wait(StreamRef stream) = 0;
  /// Whether the device has passed the point recorded last, outside of a capture. Throws: DeviceError.
  virtual bool reached() = 0;
};

/// Work that was captured: one launch enqueues all of it. The memory that it names must outlive its runs.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void launch(StreamRef stream) = 0;
};

class Accelerator {
 public:
  virtual ~Accelerator() = default;

  virtual std::string description() const = 0;  // "cuda:0 NVIDIA H200"
  /// Kernels that the calling thread prepares from now on are this device's. The thread that opened it, and
  /// those that have enqueued copies, have no need to ask.
  virtual void make_current() = 0;
  virtual const AcceleratorOptions& options() const = 0;

  /// Zeroed device memory, 256-byte aligned. `purpose` appears in messages. Waits for the device, as giving
  /// back does. Throws: DeadlineExceeded when the device does not answer; memory that is given back then is
  /// not used again, as a kernel may still write to it.
  virtual std::shared_ptr<std::byte[]> allocate(std::uint64_t bytes, const std::string& purpose) = 0;
  /// Zeroed page-locked host memory.
  virtual std::shared_ptr<std::byte[]> allocate_pinned(std::uint64_t bytes, const std::string& purpose) = 0;
  /// Whether all of these bytes are in one piece of memory that allocate_pinned() gave and that is held.
  virtual bool is_pinned(const void* memory, std::uint64_t bytes) const = 0;
  virtual std::uint64_t bytes_in_use() const = 0;

  /// Between any two of device, page-locked and other host memory, and complete when it returns.
  /// Throws: DeadlineExceeded when the device does not answer.
  virtual void copy_now(void* to, const void* from, std::uint64_t bytes) = 0;
  /// In stream order. Host memory must be page-locked and stay until the copy is done.
  virtual void copy(void* to, const void* from, std::uint64_t bytes, StreamRef stream) = 0;
  virtual void fill_zero(void* to, std::uint64_t bytes, StreamRef stream) = 0;

  /// The stream of that name and priority, made at its first use; never the device's default stream. Work of
  /// a higher priority goes first where both wait for room; 0 is the usual one, and more than the device
  /// knows is its highest.
  virtual StreamRef stream(const std::string& name, int priority = 0) = 0;
  virtual std::unique_ptr<DeviceEvent> make_event() = 0;

  /// From here to end_capture(), work on `stream`, and on streams that come to wait for it, is recorded
  /// instead of run. Such streams must be waited for by `stream` before the end.
  virtual void begin_capture(StreamRef stream) = 0;
  /// Throws: DeviceError with the reason why this work cannot be captured; nothing of it has run.
  virtual std::unique_ptr<DeviceGraph> end_capture(StreamRef stream) = 0;
  /// Ends a capture that an error interrupted. Does nothing when there is none.
  virtual void abandon_capture(StreamRef stream) noexcept = 0;

  /// A name for what follows on the calling thread in profilers' timelines, until the matching pop.
  virtual void push_range(const char* name) = 0;
  virtual void pop_range() = 0;

  /// Waits until all work is done. Throws: DeviceError, DeadlineExceeded, Cancelled.
  virtual void synchronize(const WaitContext& wait) = 0;
};

/// Devices that can be used now; 0 also where there is no driver or this build has no CUDA.
int cuda_device_count();
/// Throws: InvalidArgument when this build has no CUDA, there is no usable device or driver, or not that many
/// devices.
std::shared_ptr<Accelerator> open_cuda(const AcceleratorOptions& options);

}  // namespace braid
