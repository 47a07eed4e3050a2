// Offload of what rests in a step (offload_values.cc), where the graph asks for it: it has a node without
// inputs and without an effect (NoOp) that is a target and says how much, as nodes say which streams they
// want.
#pragma once

#include <string>
#include <vector>

#include "engine/program/plan.h"

namespace braid {

struct OffloadWish {
  std::vector<std::string> scope = {};  // regular expressions (RE2) for whole names of nodes
  double share = 0;  // where there is no scope: of all bytes that rest, those that are made first
};

/// Adds such a node, which is to be among the targets, or replaces what the graph's node says. Gives its
/// name.
std::string ask_for_offload(Graph& graph, const OffloadWish& wish);

/// The pass. Throws: InvalidArgument for a pattern that is none, or fits no value that could be offloaded.
void offload_values(Plan& plan);

}  // namespace braid
