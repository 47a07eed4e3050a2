// Box copies on a device: the plans of common/box_plan.h. Boxes of at most two axes with contiguous rows,
// such as the parts of a concatenation, share a launch by up to 32; a box whose sides are contiguous along
// different axes goes through square tiles in shared memory; all others are walked element by element. Rows
// are moved in the largest unit of 1 to 16 bytes that divides all their offsets, lengths and addresses.
#pragma once

#include "engine/ops/common/box_plan.h"

namespace braid::cuda {

/// Stream: everything is enqueued on KernelArgs::stream.
PreparedKernel box_kernel(const PrepareContext& c, const BoxPlan& plan);

template <BoxPlan (*kPlan)(const PrepareContext&)>
PreparedKernel prepare_boxes(const PrepareContext& c) {
  return box_kernel(c, kPlan(c));
}

/// Whether every input is made of elements that can be copied.
bool has_plain_inputs(std::span<const OutputInfo> inputs);

}  // namespace braid::cuda
