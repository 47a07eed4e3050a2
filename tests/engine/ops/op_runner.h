// Runs single ops and small graphs for the tests of this folder: node by node, in topological order, each
// output in memory of its own with exactly its bytes, so that AddressSanitizer sees every access beyond it.
// Knows nothing of streams or programs.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/op.h"
#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

struct Execution {
  int pool_width = 1;
  std::map<NodeId, Tensor> feeds;      // of input nodes
  std::map<NodeId, Tensor> variables;  // of VarHandleOp nodes; written in place
  /// The output of every node that declares this pair is placed in the input's memory (a copy of it).
  std::optional<std::pair<int, int>> in_place;
  StepParams params;
};

/// The values of `fetches`. Throws what kernels throw.
std::vector<Tensor> evaluate(const Graph& graph, Execution& execution, const std::vector<ValueRef>& fetches);

/// A node whose value is fed; its static type and shape are known, or only what `shape` says.
ValueRef add_input(Graph& graph, const std::string& name, DType dtype, const Shape& shape);
/// A node whose value is known at compile time.
ValueRef add_known(Graph& graph, const std::string& name, const Tensor& value);

/// A graph of one op applied to the case's inputs.
struct CaseGraph {
  Graph graph;
  Execution execution;
  std::vector<ValueRef> inputs;
  NodeId node = kNoNode;
  std::vector<ValueRef> outputs() const;
};
CaseGraph make_case_graph(const OpDef& def, const OpCase& op_case);

/// The op's outputs for the case, as evaluate gives them.
std::vector<Tensor> run_case(const OpDef& def, const OpCase& op_case, int pool_width = 1);
/// For tests of values: one op, inputs, attributes; all outputs. Floats may be of any type.
std::vector<Tensor> run_op(const std::string& op, std::vector<Tensor> inputs, AttrMap attrs = {});
/// One of them, as doubles.
std::vector<double> values(const std::string& op, std::vector<Tensor> inputs, AttrMap attrs = {},
                           std::size_t output = 0);
/// Runs a case of an op that writes its variables; their values afterwards.
std::vector<Tensor> run_update(const std::string& op, const OpCase& op_case, const StepParams& params,
                               int pool_width = 1);
/// Runs an op for its effect; its outputs are not fetched.
void run_effect(const std::string& op, std::vector<Tensor> inputs, AttrMap attrs = {});
/// The message of the InvalidArgument that run_op throws.
std::string refusal(const std::string& op, std::vector<Tensor> inputs, AttrMap attrs = {});

}  // namespace braid::testing
