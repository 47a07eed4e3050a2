// Whose random numbers decide what a node of braid.Dropout drops.
#pragma once

#include <string>

#include "engine/ir/graph.h"

namespace braid {

/// A gradient names its forward node; a forward node draws its own.
inline std::string dropout_mask_name(const Node& node) { return node.attrs.get("mask_name", node.name); }

}  // namespace braid
