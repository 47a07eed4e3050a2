#include "worker/model/updates.h"

#include <algorithm>
#include <array>
#include <set>

#include "proto/job.pb.h"
#include "worker/model/def_graph.h"

namespace braid::worker {
namespace {

bool assigns(const NodeDef& node) {
  constexpr std::array kOps{"Assign",
                            "AssignAdd",
                            "AssignSub",
                            "AssignVariableOp",
                            "AssignAddVariableOp",
                            "AssignSubVariableOp",
                            "ScatterUpdate",
                            "ScatterAdd",
                            "ScatterSub",
                            "ResourceScatterUpdate"};
  return std::find(kOps.begin(), kOps.end(), node.op()) != kOps.end();
}

/// What the value of an assignment follows from.
struct Origin {
  bool batch = false, own_value = false, gradients = false, file = false;
};

Origin origin_of(const NodeIndex& index, const NodeDef& assignment, const std::string& variable) {
  std::vector<std::string> values;
  for (int i = 1; i < assignment.input_size(); ++i)
    if (!assignment.input(i).starts_with('^')) values.push_back(assignment.input(i));
  Origin origin;
  origin.own_value = !assignment.op().starts_with("Assign") ||
                     assignment.op().find("Add") != std::string::npos ||
                     assignment.op().find("Sub") != std::string::npos;
  for (const NodeDef* node : index.above(values)) {
    origin.batch |= node->op() == "Placeholder";
    origin.own_value |= is_variable(*node) && variable_name(*node) == variable;
    origin.gradients |= node->name().find("gradients/") != std::string::npos ||
                        node->name().find("gradient_tape/") != std::string::npos;
    origin.file |= node->op().starts_with("Restore");
  }
  return origin;
}

std::vector<std::string> named_updates(const proto::TrainedGraph& asked, const ModelFile& file,
                                       Problems& problems) {
  std::vector<std::string> names;
  for (const std::string& name : asked.updates()) {
    if (const auto value = file.value_of(name))
      names.push_back(parse_value_name(*value).node);
    else
      problems.add("model.graph.updates: there is no node '" + name + "'" + file.hint(name));
  }
  return names;
}

}  // namespace

std::vector<std::string> choose_updates(const proto::TrainedGraph& asked, ModelFile& file,
                                        const std::vector<std::string>& roots,
                                        const std::function<bool(const std::string&)>& trained,
                                        Problems& problems) {
  if (asked.updates_size() == 1 && asked.updates(0) == "NONE") return {};
  if (asked.updates_size() > 0) return named_updates(asked, file, problems);
  const NodeIndex index(file.graph);
  std::vector<std::string> names;
  for (const std::string& name : file.facts.update_ops)
    if (const auto value = file.value_of(name)) names.push_back(parse_value_name(*value).node);
  if (!names.empty()) return names;
  std::set<std::string> read;
  for (const NodeDef* node : index.above(roots))
    if (is_variable(*node)) read.insert(variable_name(*node));
  for (const NodeDef& node : file.graph.node()) {
    const NodeDef* variable = assigns(node) ? variable_of(index, node) : nullptr;
    if (!variable) continue;
    const std::string name = variable_name(*variable);
    if (trained(name) || file.facts.local_variables.contains(name)) continue;
    const Origin origin = origin_of(index, node, name);
    const bool counts = origin.own_value && read.contains(name);
    if ((origin.batch || counts) && !origin.gradients && !origin.file) names.push_back(node.name());
  }
  return names;
}

}  // namespace braid::worker
