// Which nodes are siblings, and which groups of them pay: the decision behind horizontal_fusion.h. Groups are
// found level by level, a node's level being the longest path before it, so the members of a group never
// depend on each other and groups never depend on each other in a circle. Thread rule: one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/ir/op_traits.h"
#include "engine/program/plan.h"

namespace braid {

struct SiblingOperand {
  enum class Kind {
    Aligned,  // the result of `group`
    Shared,   // one value for all lanes
    Slab,     // the variables of `slab`: their values, or, of an Update, their handles
    Packed,   // the lanes' values, copied together
  };
  Kind kind = Kind::Packed;
  int group = -1, slab = -1;
};

/// Inputs that are batched, the first ones; the others only say how.
int batched_inputs(Batching form, const Node& node);

struct SiblingGroup {
  Batching form = Batching::Elementwise;
  std::vector<NodeId> lanes;
  std::vector<SiblingOperand> operands;
  bool accepted = true;
  bool unpacked = false;  // a lane's result is used by itself
};

/// Variables that lie one after another, in the order of the lanes.
struct VariableSlab {
  std::vector<NodeId> handles;
  bool possible = true;
};

struct SiblingGroups {
  std::vector<SiblingGroup> groups;  // operands refer to groups before
  std::vector<VariableSlab> slabs;
  double separate_us = 0, batched_us = 0;  // modelled, of all that is in an accepted group
};

SiblingGroups find_sibling_groups(const Plan& plan);

/// Sets `accepted`, `unpacked` and what follows from them.
void choose_sibling_groups(const Plan& plan, SiblingGroups& found);

}  // namespace braid
