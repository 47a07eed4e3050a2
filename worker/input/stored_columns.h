// Columns that travel to the step as they are stored.
#pragma once

#include <string>
#include <vector>

#include "engine/input/schema/table.h"
#include "engine/ir/graph.h"

namespace braid::worker {

/// The placeholders of columns that the batcher delivers as uint8 (BatchOptions::as_stored) become uint8, and
/// the graph computes value * scale from them, as the batcher does otherwise: the same bits. Does nothing to
/// other columns.
void cast_stored_columns(Graph& graph, const std::vector<std::string>& columns, const Batcher& batcher);

}  // namespace braid::worker
