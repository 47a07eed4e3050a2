// Finds the largest part of a graph that can run ahead of the step: everything that depends on the records
// and not on state. What depends on state is the forward closure, over data and control edges, of variables,
// of placeholders that do not come with records, of ops that write or talk to other processes, and of the
// nodes that are kept. A value crosses where a node of that closure, or a fetch, takes what is outside of it.
//
// Control edges hold: a node that must run after state is in the closure; where a node in the closure must
// run after one that is staged, the staged one's values cross. Pure function: no state of the process
// decides.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/staging/graph_stage.h"

namespace braid {

struct AutoStageRequest {
  std::vector<std::string> records;    // placeholders that come with each record
  std::vector<std::string> keep = {};  // nodes that stay in the step, with what depends on them
  std::vector<std::string> only = {};  // not empty: nothing is staged but these nodes and what is above them
  std::vector<std::string> fetches = {}, targets = {};  // of the step
  StageOptions options = {};
};

struct AutoStageResult {
  std::optional<GraphStage> stage;  // none: there is nothing to stage
  int nodes = 0;                    // that it computes
  std::string report;               // what was staged, or why nothing was
};

/// Throws: InvalidArgument for names that the graph does not have.
AutoStageResult auto_stage(const Graph& graph, const AutoStageRequest& request);

}  // namespace braid
