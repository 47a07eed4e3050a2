// What `braid graph check` says about a graph: what keeps it from loading, grouped by op. Thread rule: pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "engine/import/import.h"

namespace braid {

/// Nodes of one op that cannot be loaded for one reason.
struct CheckFinding {
  std::string op;
  std::string reason;
  std::vector<std::string> nodes;  // in the order of the file
};

struct GraphCheck {
  int nodes = 0;                       // in the file
  std::vector<CheckFinding> findings;  // most nodes first, then by op and reason
  bool ok() const { return findings.empty(); }
};

GraphCheck check_graph(const GraphDef& graph, const ImportOptions& options = {});

/// A line a finding with its number of nodes and the first `max_names` of their names; one line when all is
/// well.
std::string format_check(const GraphCheck& check, std::size_t max_names = 3);

}  // namespace braid
