// Variables that a run would read although nothing has given them a value: it would compute with zeros or
// random numbers, and say nothing. Thread rule: pure functions.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace braid::worker {

/// The names of the variables that computing `outputs` and running `targets` reads before that part of the
/// graph has set them wholly, in the order of the graph, without those in `set`. Variables that the part sets
/// are added to `set`. What is above `given` values is not computed. Throws: InvalidArgument for a name that
/// is no value or node.
std::vector<std::string> take_unset_variables(const Graph& graph, const std::vector<std::string>& outputs,
                                              const std::vector<std::string>& targets,
                                              const std::vector<std::string>& given,
                                              std::set<std::string>& set);

/// "3 variables have no values: 'a', 'b', 'c'", the first few of them.
std::string unset_text(const std::vector<std::string>& names);

}  // namespace braid::worker
