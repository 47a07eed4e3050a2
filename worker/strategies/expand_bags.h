// Bags of tables (braid.Bag) for strategies that send rows of single ids: a gather of the rows and their sum
// in its place. Thread rule: one thread.
#pragma once

#include "engine/ir/graph.h"

namespace braid::worker {

bool is_bag_of(const Node& node, NodeId handle);

/// Whether its bags vary in length.
bool is_ragged_bag(const Node& node);

/// Of all bags of this table. `strategy` is for the error. Of bags of varying length the ids that belong to
/// none are looked up too: they are ids of the batch, and their gradients are zeros. Throws: InvalidArgument
/// for pooling max.
void expand_bags(Graph& graph, const VariableInfo& table, std::string_view strategy);
/// Of all tables.
void expand_bags(Graph& graph, std::string_view strategy);

}  // namespace braid::worker
