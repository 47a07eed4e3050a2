// A program as a drawing for Graphviz: a node for each op, filled with the colour of its stream, streams as
// boxes, the critical path with bold borders. Edges: stream order (grey), waits on events (coloured like the
// stream that is waited for), dependencies that other order already implies (dotted). Thread rule: pure.
#pragma once

#include <string>

#include "engine/program/program.h"

namespace braid {

/// Text in the DOT language; the same program gives the same text.
std::string plan_dot(const Program& program);

}  // namespace braid
