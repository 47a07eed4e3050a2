// Nodes around exchanges between some of the ranks (group_ops.h). Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "worker/step/training_graph.h"

namespace braid::worker {

/// All of them in that type, by one node.
std::vector<ValueRef> cast_together(Graph& graph, std::vector<ValueRef> values, DType to,
                                    const std::string& name);

/// [members, ...] to [...], in the order of the members. Of float32.
ValueRef sum_of_members(Graph& graph, ValueRef gathered, const std::string& name);

/// [members, rows, ...] to [members * rows, ...]. `own`: what this rank gave, [rows, ...].
ValueRef behind_each_other(Graph& graph, ValueRef gathered, ValueRef own, const std::string& name);

/// Rows that groups gather must be as many in each. Throws: InvalidArgument for a table that columns of
/// varying length look into.
void require_rows_of_fixed_length(const Graph& graph, const VariableGradient& gradient);

}  // namespace braid::worker
