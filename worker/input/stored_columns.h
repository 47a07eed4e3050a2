// Columns that travel to the step as they are stored: bytes of images, and ids in 32 bits.
#pragma once

#include <string>
#include <vector>

#include "engine/input/schema/table.h"
#include "engine/ir/graph.h"

namespace braid::worker {

struct TrainingGraph;

/// The placeholders of columns that the batcher delivers as uint8 (BatchOptions::as_stored) become uint8, and
/// the graph computes value * scale from them, as the batcher does otherwise: the same bits. Does nothing to
/// other columns.
void cast_stored_columns(Graph& graph, const std::vector<std::string>& columns, const Batcher& batcher);

/// Who takes ids that travel in 32 bits.
enum class NarrowIds {
  Cast,     // one Cast a column, and all nodes behind it what the model wrote
  ByNodes,  // nodes that only move ids or look rows up by them; all others a Cast
};

/// The placeholders of int64 columns that the batcher delivers as int32 become int32. The same bits.
/// REQUIRES: gradients are made, updates are not.
void narrow_id_columns(TrainingGraph& training, const std::vector<std::string>& columns,
                       const Batcher& batcher, NarrowIds taken);

/// The nodes that cast those columns of bytes.
std::vector<NodeId> casts_of_bytes(const Graph& graph, const std::vector<std::string>& columns);

}  // namespace braid::worker
