// Inputs whose values decide shapes (OpDef::shape_values) must be known before a program is made: kernels
// read them when they are prepared. A shape can be known without them, e.g. that of a reversed tensor. Thread
// rule: pure functions.
#pragma once

#include "engine/ir/graph.h"

namespace braid {

/// The first such input of the node whose value is not known, or -1.
int unknown_shape_value(const Graph& graph, const Node& node);

}  // namespace braid
