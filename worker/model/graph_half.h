// A graph of model.graph: the one that trains, or the one that predicts where that is another; its file, what
// is to be computed of it, and the graph that Braid makes of these. Thread rule: pure, but for the half.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "worker/model/model_file.h"
#include "worker/model/problems.h"

namespace braid::worker {

struct GraphHalf {
  ModelFile file;
  Graph graph;
  std::vector<std::string> roots;  // values, under their names in the graph
};

/// The value that `field` of model.graph names; where there is none a problem, and "". What runs behind a
/// call for its effect is not part of its value.
std::string value_for(const ModelFile& file, const char* field, const std::string& name, Problems& problems);

/// half.graph of what the roots, and the columns that feed them, need of the file. Ops that keep it from
/// loading are problems, with what to write in the job. Roots without a name are told already, and go.
void import_half(GraphHalf& half, const std::vector<std::string>& columns, Problems& problems);

/// A problem for each of `readers`, nodes that read values whose size data decides, and cannot; with KEEP
/// they hear of REDO.
void refuse_unknown_sizes(const Graph& graph, const std::vector<NodeId>& readers, bool keeps,
                          Problems& problems);

}  // namespace braid::worker
