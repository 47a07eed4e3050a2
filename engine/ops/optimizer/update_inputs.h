// The inputs of ops that step an optimizer (braid.ApplyOptimizer and its kin): for each variable its handle,
// the handles of its slots, and what its gradient consists of (dense: one tensor; sparse: indices [n] and
// values [n, row...]). Where the rows of all variables are grouped already, each has its values only and the
// last input is the entries (engine/ops/common/row_entries.h). Thread rule: pure functions.
#pragma once

#include "base/optim.h"
#include "engine/ir/op.h"

namespace braid {

struct UpdateInputs {
  OptimizerSpec spec;
  int slots = 0;
  int gradient_inputs = 1;
  int variables = 1;

  int stride() const { return 1 + slots + gradient_inputs; }
  int handle(int variable) const { return variable * stride(); }
  int slot(int variable, int s) const { return handle(variable) + 1 + s; }
  int gradient(int variable) const { return handle(variable) + 1 + slots; }
};

/// Checks handles and gradients of all variables; those of one op are `gradient_inputs` each.
UpdateInputs infer_update(const InferContext& c, int gradient_inputs);
/// The same for a kernel. Fails unless all variables hold float32.
UpdateInputs prepared_update_inputs(const PrepareContext& c, int gradient_inputs);
/// Where what is, of inputs that are checked.
UpdateInputs update_inputs(const Node& node, std::span<const OutputInfo> inputs, int gradient_inputs);
/// Whether the inputs that are variables hold float32: what kernels on a device take.
bool updates_float32(const Node& node, std::span<const OutputInfo> inputs, int gradient_inputs);

/// The update of one step.
PreparedUpdate step_update(const OptimizerSpec& spec, const StepParams& params);

/// An op that updates one variable (`many`: any number of them).
OpDef update_op(std::string name, int gradient_inputs, bool many, PrepareFn cpu);
/// One that updates rows of any number of variables by entries; its layout is that of one gradient input.
OpDef grouped_update_op(std::string name, PrepareFn cpu);

}  // namespace braid
