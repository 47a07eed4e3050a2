// Graph -> GraphDef, the way back from import.h: what the importer has inlined and lowered stays so, and
// loading the result gives the same graph again. Thread rule: pure function.
#pragma once

#include "engine/ir/graph.h"
#include "proto/graph.pb.h"

namespace braid {

/// The live nodes in their order. Colocation is written as `_class`, streams as `_stream_id`.
GraphDef to_graph_def(const Graph& graph);

}  // namespace braid
