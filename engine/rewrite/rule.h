// The driver of rewrite rules. A pass is a list of rules {name, pattern, guard, build}:
//
//   pattern   the ops that a rule looks for, from the node that it starts at up to what that reads
//   guard     whether these nodes may be rewritten; gives a bool, or an optional with what it has found out
//   build     puts other nodes in their place (engine/rewrite/rewrite.h has the means)
//
// Nodes are visited once, in topological order as the graph is before; nodes that are made are not. A node is
// rewritten by the first rule that fits. Users are those at the start, so what a rule sees does not depend on
// the rules that came before, except by the inputs that these have changed. Thread rule: one thread.
#pragma once

#include <functional>
#include <initializer_list>
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

  /// The same, whose input `input` is output 0, or another, of a node that fits `pattern`.
  Pattern reading(int input, Pattern pattern) && {
    inputs_.emplace_back(input, std::move(pattern));
    return std::move(*this);
  }

  /// Whether the node's op is one of these; its inputs are not looked at.
  bool names(const Node& node) const;
  /// The nodes that fit, `node` first, then those it reads in the order of the pattern; none where one does
  /// not, or is removed.
  std::vector<NodeId> match(const Graph& graph, const Node& node) const;

 private:
  bool collect(const Graph& graph, const Node& node, std::vector<NodeId>& found) const;

  std::vector<std::string_view> ops_;
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

}  // namespace braid
