// A program bound to memory: kernels prepared, arenas, slots for up to k steps in flight, and for each slot
// the arguments of every op, so that a step only writes its feeds. Everything is allocated here, nothing
// while steps run.
//
// A program of the device has two blocks a slot in its memory, each with a page-locked image on the host:
//   inputs    StepParams, the step's number, and the feeds that device ops read, in the order of the feeds.
//             Those in page-locked memory, or on the device, are copied from where they lie, neighbours of
//             one block together; the others go through the image, which costs the issuing thread a memcpy
//   outputs   StepStatus, the fetched values, then slots that stay: the first two are one copy a step, to the
//             host, or the values to memory of the device
// What host ops of such a program use is page-locked, so that copies need not wait.
//
// Thread rule: built by one thread; set_feed(slot) and stage_inputs(slot) by whoever starts the step in that
// slot.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/exec/copy_list.h"
#include "engine/exec/runtime.h"
#include "engine/ir/op.h"
#include "engine/program/program.h"

namespace braid {

class BoundProgram {
 public:
  /// `params` and `waits` are those of each slot; they outlive this. `streams` are those that the kernels of
  /// each of the program's streams are given. `constants_of`, unless it is null, is
  /// the same program bound before: its constants on the device are used. Throws: what kernels throw when
  /// they are prepared; OutOfMemory; InvalidArgument for a variable that exists with another type or shape,
  /// and for a program of the device without one.
  BoundProgram(std::shared_ptr<const Program> program, Runtime& runtime,
               std::vector<const StepParams*> params, std::vector<const WaitContext*> waits,
               std::vector<StreamRef> streams, const BoundProgram* constants_of = nullptr);
  BoundProgram(const BoundProgram&) = delete;

  const Program& program() const { return *program_; }
  StreamRef stream(int stream) const { return streams_[static_cast<std::size_t>(stream)]; }
  const PreparedKernel& kernel(int op) const { return kernels_[static_cast<std::size_t>(op)]; }
  const KernelArgs& args(int slot, int op) const {
    return args_[static_cast<std::size_t>(slot)][static_cast<std::size_t>(op)];
  }

  void set_feed(int slot, int feed, const void* memory);
  /// Whether ops of the host read the feed, so that its memory must be there.
  bool host_reads(int feed) const { return !feed_positions_[static_cast<std::size_t>(feed)].empty(); }
  /// A copy of a fetched value, or its place in `results`. That and `feeds` are of the step. REQUIRES: the
  /// step is done, and its outputs copied.
  Tensor fetch(int slot, int fetch, const std::vector<Tensor>& feeds,
               const std::shared_ptr<std::byte[]>& results) const;

  // Of a program of the device.

  /// Writes the image of a slot's inputs. What comes back is to be copied before the step: valid until the
  /// slot's next call.
  const std::vector<MemoryCopy>& stage_inputs(int slot, const StepParams& params, std::uint64_t number,
                                              const std::vector<Tensor>& feeds);
  std::uint64_t input_bytes() const { return input_bytes_; }
  /// To be copied behind the step: the status to the host, and fetched values there or to `results`. Of the
  /// copies some may be empty.
  std::array<MemoryCopy, 2> copies_of_outputs(int slot, const std::shared_ptr<std::byte[]>& results) const;
  std::uint64_t result_bytes() const { return output_bytes_; }
  /// Where the device finds the number that stage_inputs() was given.
  const std::uint64_t* number_on_device(int slot) const;
  StepStatus* status_on_device(int slot) const;
  /// From the image. REQUIRES: as fetch().
  const StepStatus& status(int slot) const;

 private:
  using Block = std::shared_ptr<std::byte[]>;
  struct Mirrored {
    Block device, image;
  };

  /// The op whose output, or else whose scratch memory, is the largest, for errors.
  std::string largest_holder() const;
  Block allocate(Domain domain, std::uint64_t bytes, const std::string& purpose) const;
  void prepare_kernels(Runtime& runtime);
  PreparedKernel prepare(const ProgramOp& op, Runtime& runtime) const;
  void allocate_constants(const BoundProgram* shared);
  void allocate_slots();
  void allocate_device_slots();
  void allocate_scratch();
  void bind_arguments(const std::vector<const StepParams*>& params,
                      const std::vector<const WaitContext*>& waits);
  void* address(int slot, int buffer, Domain user) const;
  bool is_fetched(int buffer) const;

  const std::shared_ptr<const Program> program_;
  const std::size_t slots_;
  Accelerator* const device_;
  const std::vector<StreamRef> streams_;
  Block arena_, device_arena_, device_constants_;
  std::vector<std::uint64_t> constant_offsets_;  // in device_constants_
  std::vector<Tensor> variables_;                // sharing the store's memory
  std::vector<PreparedKernel> kernels_;
  std::vector<std::vector<Block>> slot_memory_;  // on the host, by step slot and Slot buffer
  std::vector<Mirrored> inputs_, outputs_;       // by step slot
  std::vector<std::uint64_t> feed_offsets_;      // in inputs_; kNoOffset where no device op reads it
  std::vector<std::size_t> device_feeds_;        // those that device ops read, as they lie in inputs_
  std::vector<CopyList> input_copies_;           // by step slot
  std::vector<std::uint64_t> slot_offsets_;      // in outputs_, by Slot buffer
  std::uint64_t input_bytes_ = 0, output_bytes_ = 0;
  std::vector<Block> scratch_;                 // of each stream, then of each asynchronous op and slot
  std::vector<std::vector<void*>> pointers_;   // by slot: inputs and outputs of all ops
  std::vector<std::vector<KernelArgs>> args_;  // by slot and op
  std::vector<std::vector<std::size_t>> feed_positions_;  // by feed: places in pointers_ of host ops
};

}  // namespace braid
