// How busy a device's streams are, measured in short windows by the driver's own records of each kernel, copy
// and fill (CUPTI, loaded when a sampler is made). Outside of windows nothing is recorded.
//
// A window counts what lies between its two ends. Work is recorded from when it is launched, so recording
// begins `settle` earlier and ends `settle` later: what runs longer than that is counted short.
//
// Labels. While work is enqueued, begin_device_work() says for which node and stream; graphs that are
// captured meanwhile keep it for their replays. Work without a label is known by its stream and its kernel's
// name. Thread rule: labels from threads that issue to the device, each its own; a thread without one works
// for the one that was set last. Samplers from one thread, one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

namespace braid {

class Accelerator;

struct ActivityWindow {
  std::chrono::nanoseconds settle = std::chrono::milliseconds(20);
  std::chrono::nanoseconds length = std::chrono::milliseconds(50);
};

struct StreamActivity {
  std::string stream;
  double busy_seconds = 0;
  std::uint64_t pieces = 0;  // kernels, copies and fills
};

/// Copies of steps' inputs from the host, of those that lie whole within a window.
struct CopyActivity {
  std::uint64_t copies = 0, bytes = 0;
  double seconds = 0;         // in which one was under way
  double hidden_seconds = 0;  // of these, those in which a kernel ran, too

  void add(const CopyActivity& more);
};

struct ActivitySlice {
  int stream = 0;    // position among the streams
  std::string name;  // the node's, else the kernel's
  std::chrono::steady_clock::time_point begin, end;
};

/// Of one window, or of several added up.
struct DeviceActivity {
  double window_seconds = 0;
  double busy_seconds = 0;              // in which any stream was
  std::vector<StreamActivity> streams;  // all that the device has, idle ones too
  CopyActivity inputs;
  std::vector<ActivitySlice> slices;  // of one window; empty in sums
  std::uint64_t dropped = 0;          // records for which there was no room

  /// Sum of the streams' busy time over the device's: 1 means one after another.
  double overlap_factor() const;
  /// Adds the times of another window.
  void add(const DeviceActivity& window);
};

struct ActivityInterval {
  std::uint64_t begin = 0, end = 0;  // nanoseconds
};
/// The length of what the intervals cover together, inside of [begin, end).
std::uint64_t covered_ns(std::vector<ActivityInterval> intervals, std::uint64_t begin, std::uint64_t end);

/// The time of [begin, end) that some of `some` and some of `others` cover both.
std::uint64_t covered_by_both_ns(const std::vector<ActivityInterval>& some,
                                 const std::vector<ActivityInterval>& others, std::uint64_t begin,
                                 std::uint64_t end);

class ActivitySampler {
 public:
  virtual ~ActivitySampler() = default;
  /// Records one window, which takes as long as it says. A stop request ends it early: no window then.
  virtual DeviceActivity sample(const ActivityWindow& window, const std::stop_token& stop) = 0;
};

/// REQUIRES: made before graphs are captured whose work is to be known by node. Throws: Unavailable where
/// CUPTI is missing or another profiler uses it.
std::unique_ptr<ActivitySampler> make_activity_sampler(Accelerator& device);

/// Names what is enqueued until end_device_work(), here and in profilers' timelines. Both texts outlive that.
void begin_device_work(const char* node, const char* stream) noexcept;
void end_device_work() noexcept;

class DeviceWork {
 public:
  DeviceWork(const char* node, const char* stream) noexcept { begin_device_work(node, stream); }
  ~DeviceWork() { end_device_work(); }
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;
};

}  // namespace braid
