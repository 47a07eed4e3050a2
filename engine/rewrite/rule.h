// The driver of rewrite rules. A pass is a list of rules {name, pattern, guard, build}:
//
//   pattern   the ops that a rule looks for, from the node that it starts at up to what that reads
//   guard     whether these nodes may be rewritten; gives a bool, or an optional with what it has found out
//   build     puts other nodes in their place (engine/rewrite/rewrite.h has the means)
//
// Nodes are visited once, in topological order as the graph is before; nodes that are made are not. A node is
// rewritten by the first rule that fits. Users are those at the start, so what a rule sees does not depend on
// the rules that came before, except by the inputs that these have changed. A pass may ask for its rules
// again until none fits.
//
// A rule of groups makes one node of several that do not read each other: its guard gives a key, and its
// build gets all nodes with one key. Thread rule: one thread.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/ir/op.h"
#include "engine/rewrite/rewrite.h"

namespace braid {

/// A tree of ops. Patterns are where passes name ops; whatever else they want to know of one, it says itself.
class Pattern {
 public:
  /// Any of these ops.
  Pattern(std::initializer_list<std::string_view> ops) : ops_(ops) {}
  /// Any op that says so of itself, such as all that are elementwise.
  explicit Pattern(std::function<bool(const OpDef&)> kind) : kind_(std::move(kind)) {}

  /// The same, whose input `input` is output 0, or another, of a node that fits `pattern`.
  Pattern reading(int input, Pattern pattern) && {
    inputs_.emplace_back(input, std::move(pattern));
    return std::move(*this);
  }

  /// Whether the node's op is one of these, or of their kind; its inputs are not looked at.
  bool names(const Node& node) const;
  /// The nodes that fit, `node` first, then those it reads in the order of the pattern; none where one does
  /// not, or is removed.
  std::vector<NodeId> match(const Graph& graph, const Node& node) const;

 private:
  bool collect(const Graph& graph, const Node& node, std::vector<NodeId>& found) const;

  std::vector<std::string_view> ops_;
  std::function<bool(const OpDef&)> kind_;
  std::vector<std::pair<int, Pattern>> inputs_;
};

/// What rules work on.
struct Rewrite {
  explicit Rewrite(Plan& plan) : plan(plan), graph(plan.program.graph), users(graph) {}

  const Node& node(NodeId id) const { return graph.node(id); }
  /// Whether nobody but one node has to do with it.
  bool is_for_one(NodeId id) const { return is_inner(plan, id) && users.of(id).size() == 1; }

  Plan& plan;
  Graph& graph;
  Users users;
};

using Match = std::vector<NodeId>;

struct Rule {
  /// `guard`: (const Rewrite&, const Match&) -> bool, or std::optional<Found>; `build`: (Rewrite&, const
  /// Match&), or with a Found.
  template <class Guard, class Build>
  Rule(std::string_view name, Pattern pattern, Guard guard, Build build)
      : name(name), pattern(std::move(pattern)), apply([guard, build](Rewrite& rewrite, const Match& match) {
          auto found = guard(static_cast<const Rewrite&>(rewrite), match);
          if (!found) return false;
          if constexpr (std::is_same_v<decltype(found), bool>)
            build(rewrite, match);
          else
            build(rewrite, match, *found);
          return true;
        }) {}

  /// For rewrites that find out on the way whether they can be made. `rewrite` changes nothing where it gives
  /// false, but for nodes that nobody reads.
  Rule(std::string_view name, Pattern pattern, std::function<bool(Rewrite&, const Match&)> rewrite)
      : name(name), pattern(std::move(pattern)), apply(std::move(rewrite)) {}

  std::string_view name;
  Pattern pattern;
  std::function<bool(Rewrite&, const Match&)> apply;  // whether it was rewritten
};

/// How often each rule was applied, at `nodes` in this order; those that are removed are left out.
std::vector<int> apply_rules(Rewrite& rewrite, const std::vector<Rule>& rules,
                             const std::vector<NodeId>& nodes);

struct RulePass {
  std::vector<Rule> rules = {};
  /// What the pass says when it did something, from how often each rule was applied.
  std::function<std::string(const std::vector<int>& applied)> text = {};
  /// Whether nodes that nobody needs any more are removed (else builds remove what they replace).
  bool prunes = true;
};

/// Applies the rules, prunes, and writes the note.
void run_rules(Plan& plan, const RulePass& pass);

/// Applies each list of rules to the graph as the one before has left it, and all again until none fits.
/// Gives how many rewrites were made.
int apply_until_none_fits(Plan& plan, const std::vector<std::vector<Rule>>& stages);

/// What a rule of groups did.
struct Grouped {
  int nodes = 0, groups = 0;
};

/// Makes one node of the nodes among `nodes`, visited in this order, that fit `pattern` and to which `guard`,
/// (const Node&) -> std::optional<Key>, gives equal keys, where there are two or more. `build`, (const
/// std::vector<NodeId>& members) -> NodeId, gives the node, which is new or one of them, to the members'
/// users; then the others are removed. Groups are made in the order of their keys; guards see the graph
/// before the first.
template <class Guard, class Build>
Grouped join_groups(Graph& graph, const std::vector<NodeId>& nodes, const Pattern& pattern, Guard guard,
                    Build build) {
  using Key = typename std::invoke_result_t<Guard, const Node&>::value_type;
  std::map<Key, std::vector<NodeId>> groups;
  for (const NodeId id : nodes) {
    const Node& node = graph.node(id);
    if (node.removed || !pattern.names(node)) continue;
    if (std::optional<Key> key = guard(node)) groups[*std::move(key)].push_back(id);
  }
  Grouped grouped;
  for (const auto& [key, members] : groups) {
    if (members.size() < 2) continue;
    const NodeId made = build(members);
    for (const NodeId member : members)
      if (member != made) graph.remove(member);
    grouped.nodes += static_cast<int>(members.size());
    ++grouped.groups;
  }
  return grouped;
}

}  // namespace braid
