// A GraphDef whose names are resolved to indices and whose attributes are the engine's, before it becomes a
// Graph: nodes may stand in any order, have ops that nobody knows, and carry the reason why they cannot be
// loaded. Thread rule: one thread.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "engine/import/import.h"
#include "engine/ir/attr.h"
#include "engine/ir/topology.h"

namespace braid {

inline constexpr std::string_view kColocatePrefix = "loc:@";  // of the constraints in `_class`

struct PendingInput {
  int node = 0;  // index in PendingGraph::nodes
  int output = 0;
};

struct PendingNode {
  std::string name;
  std::string op;
  AttrMap attrs;
  std::vector<PendingInput> inputs;
  std::vector<int> controls;
  std::string device;
  int stream = kNoStream;
  bool include_grad = true;
  std::vector<std::string> colocate_with;  // names of other nodes
  std::string problem;                     // the first reason why it cannot be loaded, or empty

  void add_problem(std::string reason) {
    if (problem.empty()) problem = std::move(reason);
  }
};

struct PendingGraph {
  std::vector<PendingNode> nodes;
  std::unordered_set<std::string> names;
  std::unordered_set<std::string> left_out;  // nodes of the file that the roots do not need

  /// Adds a node under `name`, or the first of name_1, name_2, ... that is free; gives its index.
  int add(PendingNode node);
  TopologicalOrder order() const;
};

/// Throws: InvalidArgument when a root does not exist.
PendingGraph parse_nodes(const GraphDef& graph, const ImportOptions& options);

/// Reference variables and the ops that read and write them become their handle forms.
void lower_reference_variables(PendingGraph& graph);

}  // namespace braid
