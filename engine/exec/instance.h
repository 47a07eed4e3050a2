// One bound copy of a Program: its arena, events, prepared kernels and slots for up to k steps in flight.
// Steps are started in order and end in order. Results, errors and metrics of a step come back with the
// step's number. Thread rule: one thread starts steps, one (the same or another) finishes them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/wait_context.h"
#include "engine/exec/runtime.h"
#include "engine/ir/op.h"

namespace braid {

class Program;

struct StepRequest {
  StepParams params;
  /// In the order of the program's feeds; types and shapes must be the feeds'. The memory, the host's or that
  /// of the runtime's device, is read in place and held until the step is done. What host ops read is better
  /// on the host: else starting the step waits for a copy.
  std::vector<Tensor> feeds;
  /// Released when the step is done, e.g. the staged batch that the feeds point into.
  std::shared_ptr<void> keep_alive;
  /// Of a program of the device: Instance::result_bytes() of its memory. Fetches that device ops compute stay
  /// there, and the result's tensors point into it. Null: all fetches come back to the host.
  std::shared_ptr<std::byte[]> results = nullptr;
};

struct StepResult {
  std::uint64_t step = 0;
  std::vector<Tensor> fetches;  // in the order of the program's fetches; the caller's own
  double seconds = 0;           // from the step's first issue to its last completion
};

class Instance;

struct InstanceOptions {
  /// The streams are those of the runtime whose names begin with it, so that instances with different
  /// prefixes have none in common.
  std::string stream_prefix;
  /// Of a program of the device: copies to and from the host go onto the stream that launches its segments.
  /// Fewer events a step, and no copy beside the kernels of another step of this instance.
  bool merge_copies = false;
  /// Of a program of the device: priorities of its compute streams, in their order (Accelerator::stream());
  /// those that it does not have are 0.
  std::vector<int> priorities = {};
  /// Of a program of the device: an instance of the same program in the same runtime, whose constants on the
  /// device this one uses too.
  const Instance* constants_of = nullptr;
};

class Instance {
 public:
  /// Makes variables in the runtime's store (zeroed when new), prepares all kernels, allocates everything: a
  /// step allocates nothing.
  Instance(std::shared_ptr<const Program> program, Runtime& runtime, const InstanceOptions& options = {});
  /// Waits for steps in flight (bounded), logs what does not end.
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  /// Issues one step. Blocks while as many steps as the program allows are executing; results that nobody has
  /// taken yet are kept, for as many steps again. `wait` bounds this call and every wait inside the step.
  /// Throws: InvalidArgument (feeds that are not the program's), DeadlineExceeded, Cancelled, Internal
  /// (poisoned variables), and what finish() throws when an earlier step turns out to have failed.
  void start(StepRequest request, const WaitContext& wait);
  /// Waits for the oldest step whose result has not been taken. Throws a fresh exception of the step's first
  /// error, with op, node, stream and step in its text; the steps behind it are cancelled and dropped, and
  /// in_flight() is 0 afterwards. The instance can be used again, unless the step had begun to write
  /// variables: then the store is poisoned. A step that does not end in time is such an error,
  /// DeadlineExceeded, that names the nodes.
  StepResult finish(const WaitContext& wait);
  /// start + finish. A program without concurrency runs on the calling thread. REQUIRES: in_flight() == 0.
  StepResult run(StepRequest request, const WaitContext& wait);
  /// Steps that were started and whose results have not been taken.
  int in_flight() const;
  /// Of StepRequest::results; 0 for a program of the host.
  std::uint64_t result_bytes() const;
  const Program& program() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
