// Sums over ranks of arrays in host memory, added up in float32 in the order of ranks, whatever their size:
// each rank gets its part of everybody's numbers, adds them, rounds halves once, and gives the sums to all.
// As many bytes travel as in a ring's all_reduce, which would add up each part in another order, and round
// halves behind each hop. All ranks get the same bits. Thread rule: const from many threads with a scratch
// memory each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/stream_ref.h"
#include "base/wait_context.h"
#include "comm/communicator.h"

namespace braid::worker {

class OrderedSum {
 public:
  /// `counts`: elements of each array. REQUIRES: `dtype` is float32, float16 or bfloat16.
  OrderedSum(std::vector<std::int64_t> counts, int ranks, DType dtype);

  std::size_t scratch_bytes() const;
  /// An output may be its input. Throws: as Communicator::all_to_all().
  void run(comm::Communicator& communicator, void* const* inputs, void* const* outputs, void* scratch,
           StreamRef stream, const WaitContext& wait) const;

 private:
  std::size_t bytes_of_rank() const { return static_cast<std::size_t>(of_rank_) * dtype_size(dtype_); }

  std::vector<std::int64_t> counts_;
  int ranks_;
  DType dtype_;
  std::int64_t of_rank_;  // elements that a rank adds up
};

}  // namespace braid::worker
