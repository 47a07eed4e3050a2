// Tables of embeddings in a graph, found by how they are used: gathers from a variable's value become gathers
// from the variable, which read rows alone and have a gradient of rows; a variable that nothing else reads
// may be a sparse table. Thread rule: one thread.
#pragma once

#include <set>
#include <string>

#include "engine/ir/graph.h"

namespace braid::worker {

/// GatherV2 along axis 0, and Gather, of what ReadVariableOp gives become ResourceGather; ids become int64,
/// which servers take as keys. Names stay.
void gather_from_variables(Graph& graph);

/// Removes what neither `roots` nor nodes that they need use.
void remove_unused(Graph& graph, const std::set<std::string>& roots);

/// Float32 variables [rows, dim] of which nothing but rows is read. REQUIRES: the two above were called.
std::set<std::string> find_tables(const Graph& graph);

}  // namespace braid::worker
