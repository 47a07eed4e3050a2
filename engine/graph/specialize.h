// A graph for feeds whose *values* are known: where an op makes strings, or its value decides a shape (Where,
// Unique, DynamicPartition, segments, a shape that is computed from data), what it reads is computed now, on
// the host, and becomes a constant. So a program can be compiled for graphs whose shapes do not follow from
// the feeds' shapes; it is right for these values only. Thread rule: pure function.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace braid {

/// `feeds` by value name. Only what `fetches` and `targets` need is looked at. Throws: InvalidArgument: what
/// shape inference throws; and where a shape depends on what cannot be computed beforehand (a variable,
/// random numbers, a string), naming both nodes.
Graph specialize(const Graph& graph, const std::map<std::string, Tensor>& feeds,
                 const std::vector<std::string>& fetches, const std::vector<std::string>& targets);

}  // namespace braid
