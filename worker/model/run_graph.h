// Runs a part of a graph once, on the host: initializers, a saver's restore. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace braid::worker {

/// Values of `fetches` of a graph that needs no feeds. Throws: what compile() and a step throw.
std::vector<Tensor> run_graph(const Graph& graph, const std::vector<std::string>& fetches,
                              std::uint64_t seed);

/// Runs `target`, and gives what the variables hold behind it.
std::map<std::string, Tensor> variables_after(const Graph& graph, const std::string& target);

}  // namespace braid::worker
