// The inputs of ops that step an optimizer (braid.ApplyOptimizer and its kin): for each variable its handle,
// the handles of its slots, and what its gradient consists of (dense: one tensor; sparse: indices [n] and
// values [n, row...]). Where the rows of all variables are grouped already, each has its values only and the
// last input is the entries (engine/ops/common/row_entries.h).
//
// The values of a sparse gradient may be those of bags, so that those of single indices are never there:
//   attribute hots       of each variable how many indices, one after another, share a row of its values
//   attribute has_bags   further inputs [n] int32 of each variable: which row of its values an index has
//   attribute weighted   further inputs [n] float32, behind those: what that row is multiplied by
//   attribute value_offsets   of each variable where its values begin in rows that are wider, [n, any width],
//     or -1
// With the attribute has_factor the last input of all is a float32 number that all gradients are multiplied
// by. The slot of a row-wise optimizer (base/optim.h) is [rows]. Thread rule: pure functions.
#pragma once

#include "base/optim.h"
#include "engine/ir/op.h"

namespace braid {

inline constexpr const char* kHots = "hots";
inline constexpr const char* kHasBags = "has_bags";
inline constexpr const char* kWeighted = "weighted";
inline constexpr const char* kValueOffsets = "value_offsets";
inline constexpr const char* kHasFactor = "has_factor";

struct UpdateInputs {
  OptimizerSpec spec;
  int slots = 0;
  int gradient_inputs = 1;
  int variables = 1;
  bool has_indices = false, has_bags = false, weighted = false, has_factor = false;
  std::vector<std::int64_t> hots = {};     // by variable; empty: all 1
  std::vector<std::int64_t> offsets = {};  // by variable; empty: all -1

  int stride() const { return 1 + slots + gradient_inputs; }
  int handle(int variable) const { return variable * stride(); }
  int slot(int variable, int s) const { return handle(variable) + 1 + s; }
  int gradient(int variable) const { return handle(variable) + 1 + slots; }
  int values(int variable) const { return gradient(variable) + (has_indices ? 1 : 0); }
  int bags(int variable) const { return has_bags ? values(variable) + 1 : -1; }
  int weights(int variable) const { return weighted ? values(variable) + (has_bags ? 2 : 1) : -1; }
  /// Where rows are grouped.
  int entries() const { return variables * stride(); }
  int factor(bool grouped = false) const {
    return has_factor ? variables * stride() + (grouped ? 1 : 0) : -1;
  }
  /// The factor among the inputs of a kernel, or null.
  const float* factor_of(const KernelArgs& a, bool grouped = false) const {
    return has_factor ? a.in<float>(factor(grouped)) : nullptr;
  }
  std::int64_t hot(int variable) const { return hots.empty() ? 1 : hots[static_cast<std::size_t>(variable)]; }
  bool in_wider_rows(int variable) const {
    return !offsets.empty() && offsets[static_cast<std::size_t>(variable)] >= 0;
  }
  std::int64_t offset(int variable) const {
    return in_wider_rows(variable) ? offsets[static_cast<std::size_t>(variable)] : 0;
  }
  /// Elements from one row of a variable's values to the next.
  std::int64_t stride_of_values(std::span<const OutputInfo> inputs, int variable) const {
    const Shape& shape = inputs[static_cast<std::size_t>(values(variable))].shape;
    return shape[0] == 0 ? 0 : shape.elements() / shape[0];
  }
  /// How many indices a variable's rows have, from the first dimensions of its inputs.
  std::int64_t indices(std::span<const OutputInfo> inputs, int variable) const {
    const auto rows = [&](int input) { return inputs[static_cast<std::size_t>(input)].shape[0]; };
    if (has_indices) return rows(gradient(variable));
    if (has_bags) return rows(bags(variable));
    if (weighted) return rows(weights(variable));
    return rows(values(variable)) * hot(variable);
  }
};

/// Checks handles and gradients of all variables; those of one op are `gradient_inputs` each, beside what the
/// attributes add.
UpdateInputs infer_update(const InferContext& c, int gradient_inputs);
/// The same for a kernel. Fails unless all variables hold float32.
UpdateInputs prepared_update_inputs(const PrepareContext& c, int gradient_inputs);
/// Where what is, of inputs that are checked.
UpdateInputs update_inputs(const Node& node, std::span<const OutputInfo> inputs, int gradient_inputs);
/// The places of all values of sparse gradients.
std::vector<int> value_inputs(const Node& node, int gradient_inputs);
/// Whether the inputs that are variables hold float32: what kernels on a device take.
bool updates_float32(const Node& node, std::span<const OutputInfo> inputs, int gradient_inputs);

/// The update of one step, whose gradients are multiplied by `factor` unless it is null.
PreparedUpdate step_update(const OptimizerSpec& spec, const StepParams& params,
                           const float* factor = nullptr);

/// Fails unless the input is a variable's handle.
void require_handle(const InferContext& c, int input);
/// An op that writes the variables among its inputs; `infer` and `cost` are still to be set.
OpDef writing_op(std::string name, int min_inputs, int max_inputs, PrepareFn cpu);
/// An op that updates one variable (`many`: any number of them).
OpDef update_op(std::string name, int gradient_inputs, bool many, PrepareFn cpu);
/// One that updates rows of any number of variables by entries; its layout is that of one gradient input.
OpDef grouped_update_op(std::string name, PrepareFn cpu);

}  // namespace braid
