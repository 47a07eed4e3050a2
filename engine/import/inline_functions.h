// Calls of functions in a GraphDef's library -> the functions' nodes. A call is a node whose op is a
// function's name, or a (Stateful)PartitionedCall with attribute `f`. The nodes of call `c` are named
// "c/<node>"; `c` itself stays, as an Identity of its results or, without any, a NoOp, so that it can be
// fetched and waited for. Calls inside functions are expanded as well. A call with a gradient of its own
// (library.gradient, _gradient_op_type) is read through that Identity, which has the attribute
// _gradient_op_type then. Thread rule: pure function.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "proto/graph.pb.h"

namespace braid {

struct InlinedGraph {
  GraphDef graph;  // without its library
  std::map<std::string, std::string>
      problems;  // calls that cannot be expanded, and why; they stay as they were
};

/// Conditionals and loops of TensorFlow 1 are lowered before (choose_branches.h, loops_as_functions.h).
/// Nothing when the graph has none of these, and no functions.
std::optional<InlinedGraph> inline_functions(const GraphDef& graph);

}  // namespace braid
