#include <map>
#include <numeric>
#include <tuple>

#include "engine/ops/common/index_groups.h"
#include "engine/ops/optimizer/update_inputs.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

struct Tables {
  std::vector<ValueRef> indices;
  std::vector<std::int64_t> rows;
  bool skip_negative = false;
};
using Groupings =
    std::map<std::tuple<std::vector<ValueRef>, std::vector<std::int64_t>, bool, int, std::string>, NodeId>;

/// Whether a variable holds them, by other shapes at most.
bool is_kept(const Graph& graph, ValueRef indices) {
  const Node* node = &graph.node(indices.node);
  while (node->op->role != OpRole::Read && (!node->op->views.empty() || node->op->role == OpRole::Identity))
    node = &graph.node(node->inputs[0].node);
  return node->op->role == OpRole::Read;
}

bool runs_on_device(const Rewrite& r, const Match& match) {
  const Node& node = r.graph.node(match[0]);
  if (r.plan.domain_of(match[0]) != Domain::Device) return false;
  // Padded lists of other workers' rows arrive with their gradients; those of bags, and those that a step
  // before has left in variables, are there long before.
  if (!node.attrs.get(kSkipNegative, false) || node.attrs.get(kHasBags, false)) return true;
  std::vector<OutputInfo> infos;
  for (const ValueRef input : node.inputs) infos.push_back(r.graph.info(input));
  const UpdateInputs in = update_inputs(node, infos, 2);
  for (int v = 0; v < in.variables; ++v)
    if (!is_kept(r.graph, node.inputs[static_cast<std::size_t>(in.gradient(v))])) return false;
  return true;
}

NodeId grouping_of(Rewrite& r, const Node& update, Tables tables, Groupings& groupings) {
  const auto [known, is_new] = groupings.try_emplace(
      {tables.indices, tables.rows, tables.skip_negative, update.stream, update.device}, kNoNode);
  if (!is_new) return known->second;
  Node node;
  node.op = &OpRegistry::global().require("braid.GroupRows");
  node.name = r.graph.unique_name(update.name + "/rows");
  node.attrs = {{"rows", std::move(tables.rows)}};
  if (tables.skip_negative) node.attrs.set(kSkipNegative, true);
  node.inputs = std::move(tables.indices);
  node.stream = update.stream;
  node.device = update.device;
  r.plan.domains.push_back(Domain::Device);
  return known->second = r.graph.add(std::move(node));
}

void take_apart(Rewrite& r, NodeId id, Groupings& groupings) {
  const Node& node = r.node(id);
  std::vector<OutputInfo> infos;
  for (const ValueRef input : node.inputs) infos.push_back(r.graph.info(input));
  const UpdateInputs in = update_inputs(node, infos, 2);
  const auto input = [&](int i) { return node.inputs[static_cast<std::size_t>(i)]; };

  Tables tables;
  tables.skip_negative = node.attrs.get(kSkipNegative, false);
  std::vector<ValueRef> inputs;
  for (int v = 0; v < in.variables; ++v) {
    for (int i = in.handle(v); i < in.gradient(v); ++i) inputs.push_back(input(i));
    for (int i = in.values(v); i < in.handle(v + 1); ++i) inputs.push_back(input(i));
    tables.indices.push_back(input(in.gradient(v)));
    tables.rows.push_back(infos[static_cast<std::size_t>(in.handle(v))].shape[0]);
  }
  const ValueRef last = node.inputs.back();  // the grouping is a node more
  inputs.push_back({grouping_of(r, node, std::move(tables), groupings), 0});
  if (in.has_factor) inputs.push_back(last);
  Node& update = r.graph.mutable_node(id);
  update.op = &OpRegistry::global().require("braid.SparseApplyGrouped");
  update.inputs = std::move(inputs);
}

}  // namespace

void split_updates(Plan& plan) {
  if (plan.options.streams.count <= 1 || plan.options.streams.policy == StreamPolicy::None) return;
  Groupings groupings;
  const Rule rule("rows that are grouped ahead",
                  {"braid.SparseApplyOptimizer", "braid.SparseApplyOptimizerMany"}, runs_on_device,
                  [&groupings](Rewrite& r, const Match& match) { take_apart(r, match[0], groupings); });
  Rewrite rewrite(plan);
  std::vector<NodeId> nodes(static_cast<std::size_t>(plan.program.graph.size()));
  std::iota(nodes.begin(), nodes.end(), 0);  // a grouping has the name of the first update that was written
  const int split = apply_rules(rewrite, {rule}, nodes)[0];
  if (split == 0) return;
  plan.note("rows of " + std::to_string(split) + " are grouped ahead, by " +
            std::to_string(groupings.size()));
}

}  // namespace braid
