#include "engine/import/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "proto/graph.pb.h"

namespace braid {

GraphCheck check_graph(const GraphDef& graph, const ImportOptions& options) {
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> groups;
  for (ImportProblem& problem : try_import_graph(graph, options).problems) {
    groups[{problem.op, problem.reason}].push_back(std::move(problem.node));
  }
  GraphCheck check;
  check.nodes = graph.node_size();
  for (auto& [key, nodes] : groups) check.findings.push_back({key.first, key.second, std::move(nodes)});
  std::stable_sort(
      check.findings.begin(), check.findings.end(),
      [](const CheckFinding& a, const CheckFinding& b) { return a.nodes.size() > b.nodes.size(); });
  return check;
}

std::string format_check(const GraphCheck& check, std::size_t max_names) {
  if (check.ok()) return fmt::format("{} nodes, all of them can be loaded\n", check.nodes);
  std::size_t bad = 0;
  for (const CheckFinding& finding : check.findings) bad += finding.nodes.size();
  std::string text = fmt::format("{} of {} nodes cannot be loaded:\n", bad, check.nodes);
  for (const CheckFinding& finding : check.findings) {
    std::string names;
    for (std::size_t i = 0; i < std::min(max_names, finding.nodes.size()); ++i) {
      names += (i == 0 ? "" : ", ") + finding.nodes[i];
    }
    if (finding.nodes.size() > max_names) names += ", ...";
    text += fmt::format("  {:<32} {:>5}  {} ({})\n", finding.op, finding.nodes.size(), finding.reason, names);
  }
  return text;
}

}  // namespace braid
