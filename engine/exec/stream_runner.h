// Walks one stream's instructions for one step: waits, runs kernels, issues asynchronous ops, signals events.
// One task on the host stream a step; nothing is queued, looked up or allocated for a node. Thread rule:
// run() from the stream's thread, one step at a time; describe() from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/host_stream.h"
#include "engine/exec/bound_program.h"
#include "engine/exec/device_runner.h"
#include "engine/exec/step_board.h"
#include "engine/exec/trace.h"

namespace braid {

/// What all runners of one instance share.
struct RunContext {
  const Program& program;
  BoundProgram& bound;
  StepBoard& board;
  std::string stream_prefix;         // before the names of all streams
  std::vector<HostStream*> streams;  // by program stream; null for those of the device
  std::unique_ptr<Event[]> events;   // by event number
  Trace* trace = nullptr;
  std::uint64_t trace_id = 0;  // high bits of this instance's flow numbers
  DeviceRunner* device = nullptr;

  Event* event_of(int op) const {
    const int event = program.ops[static_cast<std::size_t>(op)].event;
    return event < 0 ? nullptr : &events[static_cast<std::size_t>(event)];
  }
  std::uint64_t flow(int op, std::uint64_t sequence) const {
    const auto events_per_step = static_cast<std::uint64_t>(program.events);
    return trace_id + sequence * events_per_step +
           static_cast<std::uint64_t>(program.ops[static_cast<std::size_t>(op)].event) + 1;
  }
  /// "[Op] node 'name' on stream compute1", with the prefix of the instance.
  std::string place(int op) const;
  /// The record with "place, step 12: " in front instead of the node alone.
  ErrorPtr at_node(const ErrorPtr& error, int op, std::uint64_t sequence) const;
};

class StreamRunner {
 public:
  StreamRunner(RunContext& context, int stream);
  StreamRunner(const StreamRunner&) = delete;

  /// Signals part_done of the step at its end, whatever happens.
  void run(std::uint64_t sequence) noexcept;

  /// Ops of the step that have not ended on this stream: running, in flight, or else the first that waits.
  void list_unfinished(std::uint64_t sequence, std::vector<std::string>& names) const;

 private:
  enum class Kind : std::uint8_t { Wait, Run, Issue };
  struct Step {
    Kind kind;
    bool writes_variable = false;
    bool on_device = false;  // Wait: the producer's event says only that it is issued
    std::uint8_t lag = 0;    // Wait: 1 for the step before
    int op;
    std::uint64_t bytes = 0;  // Run, Issue: that the op reads and writes
    int cause = 0;            // Wait: of the producer's stream
    Event* event = nullptr;   // Wait: what is waited for. Run: what is signalled, or null
    const PreparedKernel* kernel = nullptr;
    const char* label = "";  // in the trace
  };

  /// One asynchronous op in one slot.
  struct Flight {
    StreamRunner* runner = nullptr;
    const Step* step = nullptr;
    std::uint64_t sequence = 0;
    std::atomic<bool> pending{false};
    TraceTime begin;
    void complete(ErrorPtr error) noexcept;
  };

  template <bool kTraced>
  void walk(std::uint64_t sequence);
  template <bool kTraced>
  void wait(const Step& step, std::uint64_t sequence);
  void issue(const Step& step, std::uint64_t sequence);
  void skip_rest(std::uint64_t sequence) noexcept;
  int next_op() const;  // of the Run or Issue at or behind at_

  RunContext& context_;
  const int stream_;
  HostStream& host_;
  TraceTrack* const track_;
  std::vector<Step> steps_;
  std::vector<std::unique_ptr<Flight[]>> flights_;  // by op; slots of each
  std::uint64_t launches_ = 0, bytes_ = 0;          // of the step that is being walked
  std::atomic<std::uint64_t> sequence_{0};          // of the step that is being walked
  std::atomic<std::size_t> at_{0};                  // position in steps_; steps_.size() between steps
};

}  // namespace braid
