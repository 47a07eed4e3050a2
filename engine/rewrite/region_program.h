// From some nodes to the one program that does what they do. Thread rule: one thread.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/fusion/rules.h"
#include "engine/rewrite/region_finder.h"
#include "engine/rewrite/rewrite.h"

namespace braid {

/// What nodes do and read, each looked at once.
class NodeStepsCache {
 public:
  explicit NodeStepsCache(const Graph& graph) : graph_(graph) {}

  /// Null where the node cannot be fused.
  const fusion::NodeSteps* of(NodeId id);
  /// The value whose elements `value` has, in the same order, behind views.
  ValueRef source(const Plan& plan, ValueRef value) const;
  /// A transposition that regions read through: all of its readers may be in some.
  void read_through(NodeId id) { turns_.insert(id); }
  bool is_read_through(NodeId id) const { return turns_.contains(id); }
  /// What a node does that has no rule of its own.
  void set(NodeId id, fusion::NodeSteps steps) { steps_[id] = std::move(steps); }

 private:
  const Graph& graph_;
  std::unordered_map<NodeId, std::optional<fusion::NodeSteps>> steps_;
  std::unordered_set<NodeId> turns_;
};

struct RegionLimits {
  int nodes = 96, inputs = 24, outputs = 12;
  /// Rows that are reduced: of at most so many elements.
  std::int64_t longest_row = 8192;
};

/// Gives the region an input more, and returns its number; that of the input if it has it. Numbers of steps
/// change.
int add_input(FusedRegion& region, ValueRef value, fusion::Region::Input made);
/// Makes of `source`, a part or what is transposed, the value that it is of, as long as that is outside of
/// `nodes`, and of `input` how a region of these meets it there. Whether it was any.
bool look_through(const Plan& plan, const NodeStepsCache& steps, const std::vector<NodeId>& nodes,
                  ValueRef& source, fusion::Region::Input& input);
/// Values of a program from `at` on have a number more, so that there is room for an input.
void make_room(fusion::Region& program, int at);

/// Whether somebody needs the value for whom `has_it(reader)` is false, or it is fetched. A view whose
/// readers all look through it is no reader.
bool is_needed(const Plan& plan, const Users& users, const NodeStepsCache& steps, ValueRef value,
               const std::function<bool(NodeId)>& has_it);

/// `nodes` in topological order; `is_output(value)`: whether somebody outside needs it. Nothing where the
/// nodes do not fit one grid, a value would pass between them in another order, or there are too many of
/// anything.
std::optional<FusedRegion> make_region(const Plan& plan, NodeStepsCache& steps,
                                       const std::vector<NodeId>& nodes,
                                       const std::function<bool(ValueRef)>& is_output,
                                       const RegionLimits& limits);

}  // namespace braid
