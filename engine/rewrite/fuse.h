// What fuse() will do, for passes that run before it and weigh costs. Thread rule: pure function.
#pragma once

#include <functional>

#include "engine/ir/graph.h"

namespace braid {

/// Whether fuse() puts the node, alone or batched, into the one that makes its first input, where it costs
/// nothing.
bool fuses_into_input(const Graph& graph, const Node& node,
                      const std::function<bool(ValueRef)>& is_used_once);

}  // namespace braid
