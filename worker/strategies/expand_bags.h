// Bags of tables (braid.Bag) for strategies that send rows of single ids: a gather of the rows and their sum
// in its place. Thread rule: one thread.
#pragma once

#include "engine/ir/graph.h"

namespace braid::worker {

bool is_bag_of(const Node& node, NodeId handle);

/// Of all bags of this table. `strategy` is for the error. Throws: InvalidArgument for bags of varying
/// length.
void expand_bags(Graph& graph, const VariableInfo& table, std::string_view strategy);
/// Of all tables.
void expand_bags(Graph& graph, std::string_view strategy);

}  // namespace braid::worker
