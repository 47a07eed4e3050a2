// The exchange of whole tables' ids, rows and gradients in the order of the batch: each of several tensors
// has an owner among the ranks, and what all ranks have of it travels there, or comes from there, in one
// message for each pair of ranks. Sizes follow from shapes alone, so a captured graph can hold it. What is of
// the owner itself is copied from tensor to tensor; the rest goes through packed messages. Thread rule: const
// after construction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/piece_exchange.h"
#include "engine/ir/op.h"
#include "engine/ops/common/box_plan.h"

namespace braid::worker {

class OwnerExchange {
 public:
  enum class Direction { ToOwners, FromOwners };

  /// Of a node braid.ToOwners or braid.FromOwners, or of a part of one, with the outputs of the whole, whose
  /// shapes are known. Fails where an owner is no rank.
  OwnerExchange(const PrepareContext& context, Direction direction, std::span<const OutputInfo> outputs);

  /// Of the message that comes to this rank, at least that of a line; -1: shapes are not known.
  static std::int64_t incoming_bytes(const Node& node, Direction direction,
                                     std::span<const OutputInfo> inputs, std::span<const OutputInfo> outputs);

  /// Who writes what where, for a communicator whose ranks write each other's memory.
  const comm::PieceLayout& layout() const { return layout_; }

  // Where they do not: messages, for and from each rank. 64-byte aligned parts.
  std::size_t outgoing_bytes() const { return outgoing_bytes_; }
  std::size_t incoming_bytes() const { return incoming_bytes_; }
  /// Bytes for and from each rank, in the order of ranks; 0 for this one.
  std::span<const std::int64_t> sent() const { return sent_; }
  std::span<const std::int64_t> received() const { return received_; }

  /// Copies of what stays on this rank; into the outgoing message, which is output `to`; and out of the
  /// incoming one, which lies `from_byte` bytes behind the beginning of input `from`.
  const BoxPlan& own() const { return own_; }
  BoxPlan packed(int to) const;
  BoxPlan unpacked(int from, std::size_t from_byte) const;

 private:
  std::size_t outgoing_bytes_ = 0, incoming_bytes_ = 0;
  comm::PieceLayout layout_;
  std::vector<std::int64_t> sent_, received_;
  BoxPlan own_, packed_;
};

/// The arguments of a box plan's kernel: those of the node, and the scratch behind the inputs and the
/// outputs. Thread rule: one thread at a time.
class WithScratch {
 public:
  WithScratch(std::size_t inputs, std::size_t outputs) : inputs_(inputs + 1), outputs_(outputs + 1) {}

  /// Valid until the next call.
  KernelArgs of(const KernelArgs& args) {
    std::copy_n(args.inputs, inputs_.size() - 1, inputs_.begin());
    std::copy_n(args.outputs, outputs_.size() - 1, outputs_.begin());
    inputs_.back() = outputs_.back() = args.scratch;
    KernelArgs all = args;
    all.inputs = inputs_.data();
    all.outputs = outputs_.data();
    return all;
  }

 private:
  std::vector<void*> inputs_, outputs_;
};

}  // namespace braid::worker
