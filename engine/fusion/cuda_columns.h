// CUDA C++ of the sums of columns of a region (cuda_source.h). A block takes one part of the rows after the
// other; a thread has the same columns in all of them. At the end the lanes of a warp that have the same
// columns are added, then the warps, and the block's sums go into scratch memory. A second kernel adds the
// blocks in their order. Thread rule: values; functions are pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/fusion/cuda_layout.h"
#include "engine/fusion/region.h"

namespace braid::fusion {

class ColumnSums {
 public:
  /// `region` outlives this. There are none where the layout does not loop: begin() and end() are empty then.
  ColumnSums(const Region& region, const CudaLayout& layout);

  /// Threads of a block of the second kernel.
  static constexpr int kThreads = 1024;
  std::int64_t blocks() const;  // of it
  std::size_t scratch_bytes() const { return scratch_bytes_; }
  /// What a block of the region's kernel shares, `shared` in end().
  std::int64_t shared_doubles() const;

  /// The loop over parts, `part`, which adds to sumV for each value V that is summed.
  std::string begin() const;
  std::string end() const;
  /// The second kernel, NAME_columns; its arguments are the scratch memory and the region's outputs, which
  /// are numbered by `tensors`.
  std::string kernel(std::string_view name, const std::vector<int>& tensors) const;

 private:
  struct Sums {
    int value;
    std::size_t output, offset;  // in the scratch memory, of the blocks' sums
  };
  int unrolled() const;
  std::string_view type_of(const Sums& sums) const;

  const Region& region_;
  const CudaLayout layout_;
  std::vector<Sums> sums_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace braid::fusion
