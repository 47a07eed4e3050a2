// Issues the device's part of a program's steps, and knows when it is done. One thread issues, in the order
// of the steps; nothing waits for the device but who asks for a result.
//
// A step on the device:
//   h2d       copies the slot's inputs (while the step before computes), from the host or from the device
//   launch    waits for them, then for each segment: for the host ops in front of it, and launches it
//   segment   forks from `launch` onto the program's streams and joins them again: the first run of a slot op
//             by op, later ones as one captured graph
//   d2h       copies the status and the fetched values when the last segment is done; the values to memory of
//             the device where the step asks for that
// Segments follow each other on `launch`, so waits for earlier segments and for the step before need no event
// of their own. A host op that waits for a device op polls a number in page-locked memory that the stream
// writes behind the op.
//
// Errors: what fails while issuing, and what the device reports, becomes the step's error on the board. When
// a segment cannot be captured, the reason is logged once and the program is launched op by op from then on.
// Thread rule: issue() from one thread at a time; await_step() and await_op() from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/device/event.h"
#include "engine/exec/runtime.h"

namespace braid {

class Program;           // engine/program/program.h
struct InstanceOptions;  // engine/exec/instance.h
struct RunContext;       // engine/exec/stream_runner.h

/// What each of the program's streams is on the device, by the instance's prefix and priorities; those of the
/// host are StreamRef::host().
std::vector<StreamRef> device_streams(const Program& program, Runtime& runtime,
                                      const InstanceOptions& options);

class DeviceRunner {
 public:
  DeviceRunner(RunContext& context, Runtime& runtime, const InstanceOptions& options);
  DeviceRunner(const DeviceRunner&) = delete;

  /// Whether issuing has to wait for host ops, and so needs a thread of its own.
  bool waits_for_host() const { return waits_for_host_; }
  /// Signals the board's part of the step only through await_step().
  void issue(std::uint64_t sequence) noexcept;

  /// Waits until the device has done its part of the step, then says so to the board, with the step's data
  /// error if it has one. Every step that was issued needs one call that returns Reached.
  WaitStatus await_step(std::uint64_t sequence, const WaitContext& wait) noexcept;
  /// For host streams. REQUIRES: the op's event says that it is issued.
  WaitStatus await_op(int op, std::uint64_t sequence, const WaitContext& wait) const noexcept;
  /// Whether all steps that were issued are done.
  bool idle() const;

 private:
  struct Launch {  // one op
    int op = 0;
    StreamRef stream;
    const char* stream_name = nullptr;
    std::vector<DeviceEvent*> waits;
    DeviceEvent* done = nullptr;  // for other streams of the segment
    int flag = -1;                // for host streams
  };
  struct HeadWait {
    Event* event = nullptr;
    int op = 0;
    std::uint8_t lag = 0;
  };
  struct Part {  // one segment
    std::vector<HeadWait> heads;
    std::vector<Launch> launches;
    std::vector<StreamRef> streams;
    std::vector<DeviceEvent*> tails;                   // by stream
    std::vector<std::unique_ptr<DeviceGraph>> graphs;  // by slot
    std::vector<int> signalled;  // ops with an event for host streams: it says that they are issued
    bool writes_variable = false;
  };

  struct Slot {
    DeviceEvent* inputs = nullptr;
    DeviceEvent* done = nullptr;
    std::uint64_t runs = 0;             // that went onto the device
    std::atomic<bool> launched{false};  // all of this step's ops are on the device, or will be
    std::atomic<bool> has_end{false};   // `done` comes after what this step has on the device
  };

  StreamRef stream(const std::string& name) const;
  void make_parts();
  void count_work(Runtime& runtime);
  void run(std::uint64_t sequence);
  void await_heads(const Part& part, std::uint64_t sequence);
  void run_part(Part& part, std::uint64_t sequence);
  void launch_ops(const Part& part, int slot, const WaitContext& wait);
  void join(const Part& part);
  /// Whether `done` comes after all that was launched of the step.
  bool end_after_failure(Slot& slot) noexcept;
  bool capture(Part& part, int slot, const WaitContext& wait);
  void signal_issued(std::uint64_t sequence) noexcept;
  DeviceEvent* make_event();
  void report_status(std::uint64_t sequence);
  volatile std::uint64_t* flag_at(int flag, int slot) const;

  RunContext& context_;
  Accelerator& device_;
  const bool check_kernels_;
  bool graphs_;
  bool waits_for_host_ = false;
  const std::vector<std::string> stream_names_;  // on the device, of each of the program's streams
  const StreamRef launch_, h2d_, d2h_;           // one and the same where copies are merged
  std::vector<std::unique_ptr<DeviceEvent>> events_;
  std::vector<Part> parts_;
  struct Work {  // of a step, on one stream
    Runtime::DeviceWorkCounter* counter = nullptr;
    std::uint64_t launches = 0, bytes = 0;
  };
  std::vector<Work> work_;
  DeviceEvent* fork_ = nullptr;
  DeviceEvent* end_ = nullptr;
  std::vector<Slot> slots_;
  std::shared_ptr<std::byte[]> flags_;  // by op with a flag and slot: the number of the last step
  std::vector<int> flag_of_;            // by op, or -1
  std::atomic<int> launching_{-1};      // the op whose kernel is being enqueued
  Event issued_;                        // reaches sequence + 1
  std::mutex mu_;
  std::atomic<std::uint64_t> completed_{0};  // steps told to the board
};

}  // namespace braid
