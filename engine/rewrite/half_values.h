// Which values mixed precision stores as halves, and which nodes read them: the decision between the roles of
// single nodes (precision_roles.h) and the rewriting (mixed_precision.cc). Made in three walks: what can be a
// half (in order), what is wanted as one (in reverse), what is one (in order). Thread rule: one thread.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "engine/program/plan.h"
#include "engine/rewrite/precision_roles.h"

namespace braid {

class HalfValues {
 public:
  HalfValues(const Plan& plan, const PrecisionRoles& roles, const std::vector<NodeId>& order);

  /// Values that are stored as halves.
  const std::set<ValueRef>& all() const { return halves_; }
  bool contains(ValueRef value) const { return halves_.contains(value); }
  /// Whether the node reads its half_inputs() as halves.
  bool converts(NodeId id) const { return converts_.contains(id); }

 private:
  struct Use {
    NodeId node;
    int input;
  };

  void find_uses(const std::vector<NodeId>& order);
  void find_able(const Node& node);
  void find_wanted(const Node& node);
  void find_wanted_move(const Node& node);
  void decide(const Node& node);
  void want_inputs(const Node& node);
  bool is_wanted(ValueRef value) const { return wanted_.contains(value); }
  bool is_friendly(ValueRef value) const;
  bool is_of_halves(const Node& node, const Shape& shape) const;
  bool are_all_halves(const Node& node, const std::vector<int>& inputs) const;
  double elements(ValueRef value) const;

  const Plan& plan_;
  const Graph& graph_;
  const PrecisionRoles& roles_;
  std::map<ValueRef, std::vector<Use>> uses_;
  std::set<ValueRef> fetched_, able_, wanted_, halves_;
  std::set<NodeId> friendly_moves_, converts_;
};

}  // namespace braid
