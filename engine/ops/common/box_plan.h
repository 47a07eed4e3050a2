// Ops that only move elements, as lists of box copies: which input's box goes to which place of which output.
// The rule of each op is written once, in its stem; kernels of the host run the copies one after the other,
// and those of a device join them into few launches (common/cuda/box_kernel.h).
#pragma once

#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/common/box_copy.h"

namespace braid {

struct BoxPlan {
  struct Part {
    BoxCopy copy;
    int input;
    int output;
  };
  std::vector<Part> parts;
  bool zero_first = false;  // output 0 is not covered by the copies; the rest of it is 0
};

PreparedKernel host_box_kernel(const PrepareContext& c, BoxPlan plan);

template <BoxPlan (*kPlan)(const PrepareContext&)>
PreparedKernel prepare_boxes(const PrepareContext& c) {
  return host_box_kernel(c, kPlan(c));
}

/// Defined by the stems. REQUIRES: static shapes, and values of the inputs that decide them.
namespace plans {
BoxPlan batch_to_space(const PrepareContext& c);
BoxPlan bitcast(const PrepareContext& c);
BoxPlan broadcast_to(const PrepareContext& c);
BoxPlan concat(const PrepareContext& c);
BoxPlan depth_to_space(const PrepareContext& c);
BoxPlan identity_n(const PrepareContext& c);
BoxPlan pack(const PrepareContext& c);
BoxPlan pad(const PrepareContext& c);
BoxPlan pad_grad(const PrepareContext& c);
BoxPlan reverse(const PrepareContext& c);
BoxPlan roll(const PrepareContext& c);
BoxPlan slice(const PrepareContext& c);
BoxPlan slice_grad(const PrepareContext& c);
BoxPlan space_to_batch(const PrepareContext& c);
BoxPlan space_to_depth(const PrepareContext& c);
BoxPlan split(const PrepareContext& c);
BoxPlan split_like(const PrepareContext& c);
BoxPlan strided_slice(const PrepareContext& c);
BoxPlan strided_slice_grad(const PrepareContext& c);
BoxPlan tile(const PrepareContext& c);
BoxPlan transpose(const PrepareContext& c);
BoxPlan unpack(const PrepareContext& c);
}  // namespace plans

}  // namespace braid
