// A program bound to memory: kernels prepared, arena, slots for up to k steps in flight, and for each slot
// the arguments of every op, so that a step only writes its feeds' pointers. Everything is allocated here,
// nothing while steps run. Thread rule: built by one thread; set_feed(slot) by whoever starts the step in
// that slot.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/exec/program.h"
#include "engine/exec/runtime.h"
#include "engine/memory/arena.h"
#include "engine/ops/op.h"

namespace braid {

class BoundProgram {
 public:
  /// `params` and `waits` are those of each slot; they outlive this.
  /// Throws: what kernels throw when they are prepared; OutOfMemory; InvalidArgument for a variable that
  /// exists with another type or shape.
  BoundProgram(std::shared_ptr<const Program> program, Runtime& runtime,
               std::vector<const StepParams*> params, std::vector<const WaitContext*> waits);
  BoundProgram(const BoundProgram&) = delete;

  const Program& program() const { return *program_; }
  const PreparedKernel& kernel(int op) const { return kernels_[static_cast<std::size_t>(op)]; }
  const KernelArgs& args(int slot, int op) const {
    return args_[static_cast<std::size_t>(slot)][static_cast<std::size_t>(op)];
  }

  void set_feed(int slot, int feed, const void* memory);
  /// A copy of a fetched value. `feeds` are those of the step.
  Tensor fetch(int slot, int fetch, const std::vector<Tensor>& feeds) const;

 private:
  void prepare_kernels(Runtime& runtime);
  PreparedKernel prepare(const ProgramOp& op, Runtime& runtime) const;
  void allocate_slots();
  void bind_arguments(const std::vector<const StepParams*>& params,
                      const std::vector<const WaitContext*>& waits);
  void* address(int slot, int buffer) const;

  const std::shared_ptr<const Program> program_;
  const std::size_t slots_;
  mutable Arena arena_;
  std::vector<Tensor> variables_;  // sharing the store's memory
  std::vector<PreparedKernel> kernels_;
  std::vector<std::vector<Tensor>> slot_memory_;  // by step slot and Slot buffer
  std::vector<Arena> scratch_;                    // of each stream, then of each asynchronous op and slot
  std::vector<std::vector<void*>> pointers_;      // by slot: inputs and outputs of all ops
  std::vector<std::vector<KernelArgs>> args_;     // by slot and op
  std::vector<std::vector<std::size_t>> feed_positions_;  // by feed: places in pointers_
};

}  // namespace braid
