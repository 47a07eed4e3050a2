// Where both branches of a conditional are computed, or a turn of a loop is that data decides, values enter
// what may not be taken through gates: forward they pass, and their gradients pass where it is taken. So no
// NaN of a branch that is not taken comes out of it, as it would by 0 * infinity. Thread rule: pure.
#pragma once

#include <string>

#include "proto/graph.pb.h"

namespace braid {

/// Whether values of this type have gradients.
bool has_gradients(DataType type);

/// Whether the node reads a variable of such a type.
bool reads_variable(const NodeDef& node);

/// Adds a node `name` that has the value and lets its gradient pass where `condition`, a bool scalar, is
/// `when`. The node takes stream, device and colocation of `like`.
void add_gate(GraphDef& graph, const std::string& name, const std::string& value,
              const std::string& condition, bool when, const NodeDef& like);

/// Adds a node `name` that says whether `value`, an int32 scalar, is this number.
void add_comparison(GraphDef& graph, const std::string& name, const std::string& value, int number);

/// Reads of float variables among the nodes from `first` on get gates, under the reads' names.
void gate_reads(GraphDef& graph, int first, const std::string& condition, bool when);

}  // namespace braid
