// CUDA C++ of a region: one kernel of which every size is a constant. It has no includes. Its arguments are
// the inputs, the outputs, scratch memory where it sums columns, and where it draws random numbers the step's
// parameters with a hash and a salt for each Uniform step.
//
// A kernel without reductions gives each thread a few places, a block's threads next to each other. One with
// reductions gives a row to 2 to 32 threads of a warp, or to a block, whichever holds a row with at most 8
// elements a thread, or 16 where few values live at a time: values of a row stay in registers from the first
// pass to the last, so each input is read and each output written once. A thread's places are vectors of 16
// bytes where rows, types and strides allow it (cuda_layout.h).
//
// One that sums columns has fewer blocks, of which each takes one part of the rows after the other: a thread
// has the same columns in all of them and keeps their sums, those of a block go into scratch memory, and a
// second kernel adds the blocks in their order. A block's rows follow from sizes alone.
//
// float32 arithmetic has the bits of the CPU's kernels, log, expm1 and log1p as well, as the source contains
// the text of vector_math.h: it is to be compiled with --fmad=false. exp, erf, tanh and the sigmoid are those
// of the device's library. A region that reads or writes 16-bit floats rounds coarser than that: its source
// takes fused multiplications and the device's own exponentials, quotients and roots, within some units of
// float32's last place (options()). Sums of rows have another order. The same source gives the same bits in
// every run. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/fusion/region.h"

namespace braid::fusion {

struct CudaSource {
  std::string text;
  /// The kernel's, which begins with "region_" and follows from its text.
  std::string name;
  std::int64_t blocks = 1;
  int threads = 1;  // of a block
  /// Of the kernel that adds sums of columns, columns_name(); 0: there is none. Its arguments are the scratch
  /// memory and the region's outputs.
  std::int64_t column_blocks = 0;
  int column_threads = 0;
  std::size_t scratch_bytes = 0;
  bool is_of_halves = false;  // it reads or writes 16-bit floats

  std::string columns_name() const { return name + "_columns"; }
  /// What it is compiled with, besides the architecture.
  std::span<const char* const> options() const;
};

/// Throws: InvalidArgument for what a kernel cannot do: a row longer than kLongestRow (cuda_layout.h), an op
/// without a formula.
CudaSource cuda_source(const Region& region);

}  // namespace braid::fusion
