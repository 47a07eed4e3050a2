// Conditionals of TensorFlow 1 (tf.cond: Switch, Merge and their Ref forms): both branches are computed, a
// Switch passes its value on, and a Merge is a Select between what its branches give. An Assert inside of a
// branch holds where the branch is taken. Merges and Switches of loops stay (loops_as_functions.h).
// Thread rule: pure function.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "proto/graph.pb.h"

namespace braid {

struct ChosenBranches {
  GraphDef graph;
  std::map<std::string, std::string> problems;  // nodes with effects inside of branches, and Merges, and why
};

/// Nothing when the graph has no conditional.
std::optional<ChosenBranches> choose_branches(const GraphDef& graph);

}  // namespace braid
