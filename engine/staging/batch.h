// One batch of input: tensors that point into one block of memory, which goes back to its pool when the last
// of them is dropped; what a stage computes on a device has a block there. Batches are moved, never copied.
// Thread rule: a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/ir/tensor.h"

namespace braid {

struct Batch {
  std::vector<Tensor> tensors;  // in the order of the producer's layout
  std::shared_ptr<void> block;  // what keeps the memory
  std::size_t block_bytes = 0;  // of a packed batch: all tensors of the host lie in that many bytes
  std::uint64_t ticket = 0;
  std::int64_t rows = 0;
  std::string
      cursor;  // the input position after this batch: a checkpoint of the step that consumed it stores this
};

}  // namespace braid
