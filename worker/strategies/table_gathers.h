// How strategies find the uses of a table in a training graph. Thread rule: pure functions.
#pragma once

#include "engine/ir/graph.h"
#include "engine/ir/op.h"

namespace braid::worker {

/// Whether the node takes rows from the table behind this handle.
inline bool is_gather_of(const Node& node, NodeId handle) {
  return !node.removed && node.op->name == "ResourceGather" && node.inputs[0] == ValueRef{handle, 0};
}

}  // namespace braid::worker
