// Constants of a graph that are to be trained, as variables. Thread rule: one thread.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "engine/ir/graph.h"

namespace braid::worker {

/// Each constant of floats whose node is `chosen` becomes a variable of that name; gives their values.
std::map<std::string, Tensor> promote_constants(Graph& graph,
                                                const std::function<bool(const std::string&)>& chosen);

}  // namespace braid::worker
