// Reverse-mode differentiation as a graph rewrite: adds the nodes that compute d(loss)/d(variable). Works
// without knowing batch sizes: rules that need a shape use ops that take it from another value
// (braid.ReduceToShapeOf, braid.ReshapeLike). Formula: chain rule; contributions of several uses of one value
// are added in the order of the uses' node ids (AddN), so the bits do not depend on anything else. Ops
// without a gradient stop it only when no gradient is needed through them, else they are an error; so are
// nodes with a gradient of their own (attribute _gradient_op_type), whose formula is not in the graph.
#pragma once

#include <optional>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/op.h"

namespace braid {

/// The gradient of one variable: dense, or rows of it (a table that is read by gathers only).
struct VariableGradient {
  VariableInfo variable;
  ValueRef dense;                       // valid, or
  std::optional<IndexedSlices> slices;  // set
};

/// Gradients of a scalar loss by all trainable variables that it depends on, in the order of list_variables.
/// Backward nodes get forward_of, the forward node's device, and its stream unless its include_grad is off.
/// Throws: InvalidArgument (the loss is not a float scalar; an op on the way is not differentiable: node, op
/// and reason, all at once).
std::vector<VariableGradient> add_gradients(Graph& graph, ValueRef loss);

}  // namespace braid
