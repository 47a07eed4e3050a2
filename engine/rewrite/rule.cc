#include "engine/rewrite/rule.h"

#include <algorithm>
#include <numeric>

#include "engine/graph/passes.h"

namespace braid {

bool Pattern::names(const Node& node) const {
  if (kind_) return kind_(*node.op);
  return std::find(ops_.begin(), ops_.end(), node.op->name) != ops_.end();
}

bool Pattern::collect(const Graph& graph, const Node& node, std::vector<NodeId>& found) const {
  if (node.removed || !names(node)) return false;
  found.push_back(node.id);
  return std::all_of(inputs_.begin(), inputs_.end(), [&](const auto& input) {
    const auto at = static_cast<std::size_t>(input.first);
    return at < node.inputs.size() && input.second.collect(graph, graph.node(node.inputs[at].node), found);
  });
}

std::vector<NodeId> Pattern::match(const Graph& graph, const Node& node) const {
  std::vector<NodeId> found;
  return collect(graph, node, found) ? found : std::vector<NodeId>{};
}

std::vector<int> apply_rules(Rewrite& rewrite, const std::vector<Rule>& rules,
                             const std::vector<NodeId>& nodes) {
  std::vector<int> applied(rules.size(), 0);
  for (const NodeId id : nodes)
    for (std::size_t r = 0; r < rules.size(); ++r) {
      const Match match = rules[r].pattern.match(rewrite.graph, rewrite.graph.node(id));
      if (match.empty() || !rules[r].apply(rewrite, match)) continue;
      ++applied[r];
      break;
    }
  return applied;
}

void run_rules(Plan& plan, const RulePass& pass) {
  Rewrite rewrite(plan);
  const std::vector<int> applied = apply_rules(rewrite, pass.rules, plan.program.graph.topological_order());
  if (std::accumulate(applied.begin(), applied.end(), 0) == 0) return;
  if (pass.prunes) prune(plan, true);
  if (pass.text) plan.note(pass.text(applied));
}

int apply_until_none_fits(Plan& plan, const std::vector<std::vector<Rule>>& stages) {
  int made = 0;
  for (int before = -1; before != made;) {
    before = made;
    for (const std::vector<Rule>& rules : stages) {
      Rewrite rewrite(plan);
      const auto applied = apply_rules(rewrite, rules, plan.program.graph.topological_order());
      made += std::accumulate(applied.begin(), applied.end(), 0);
    }
  }
  return made;
}

}  // namespace braid
