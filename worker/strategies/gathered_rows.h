// One of the two values of braid.AllGatherRows: the rows of all ranks one after the other. Collectives take
// as many elements from every rank; where ranks have different numbers of rows, each rank's travel with room
// for the most that one has, and are put together afterwards. Thread rule: const after construction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "engine/ir/op.h"
#include "worker/strategies/allreduce_ops.h"

namespace braid::worker {

class GatheredRows {
 public:
  /// Of value `index` of the node: 0, the indices of rows, or 1, the rows.
  GatheredRows(const PrepareContext& context, std::size_t index)
      : index_(index),
        dtype_(context.inputs[index].dtype),
        own_(context.inputs[index].shape.elements()),
        most_(own_) {
    const Shape& shape = context.inputs[index].shape;
    for (const std::int64_t rows :
         context.attr<std::vector<std::int64_t>>(index == 0 ? kIndexRows : kValueRows, {})) {
      std::int64_t elements = rows;
      for (int axis = 1; axis < shape.rank(); ++axis) elements *= shape[axis];
      elements_.push_back(elements);
      most_ = std::max(most_, elements);
    }
  }

  /// A multiple of 256.
  std::size_t scratch_bytes() const {
    return elements_.empty() ? 0 : (bytes_of(most_) * (elements_.size() + 1) + 255) / 256 * 256;
  }

  /// `scratch`: scratch_bytes() of the memory that inputs and outputs are in; copy(to, from, bytes) copies
  /// there, in the order of the stream.
  template <class Copy>
  void run(comm::Communicator& communicator, const KernelArgs& args, void* scratch, const Copy& copy,
           const WaitContext& wait) const {
    const void* const input = args.inputs[index_];
    auto* const output = static_cast<char*>(args.outputs[index_]);
    if (elements_.empty()) return communicator.all_gather(input, output, own_, dtype_, args.stream, wait);
    auto* const sent = static_cast<char*>(scratch);
    char* block = sent + bytes_of(most_);
    if (own_ > 0) copy(sent, input, bytes_of(own_));
    communicator.all_gather(sent, block, most_, dtype_, args.stream, wait);
    char* to = output;
    for (const std::int64_t elements : elements_) {
      if (elements > 0) copy(to, block, bytes_of(elements));
      to += bytes_of(elements);
      block += bytes_of(most_);
    }
  }

 private:
  std::size_t bytes_of(std::int64_t elements) const {
    return static_cast<std::size_t>(elements) * dtype_size(dtype_);
  }

  std::size_t index_;
  DType dtype_;
  std::int64_t own_, most_;             // elements, of this rank and of the one with the most
  std::vector<std::int64_t> elements_;  // of each rank; empty: all have as many
};

}  // namespace braid::worker
