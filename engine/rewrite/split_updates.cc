// On a device with several streams, a sparse update that waits for its gradient to sort its indices makes the
// step longer, though the indices are known early. Its grouping becomes a node of its own, which no gradient
// holds back:
//   braid.SparseApplyOptimizer[Many](handle, slots..., indices, values, ...)
//     -> braid.SparseApplyGrouped(handle, slots..., values, ..., braid.GroupRows(indices...))
// Updates of as many rows by the same indices share it (the tables of two widths that a model has for one
// feature). The update keeps its name, stream and control edges; the grouping has none of the latter, as
// indices are values.
#include <map>
#include <tuple>

#include "engine/ops/optimizer/update_inputs.h"
#include "engine/rewrite/passes.h"

namespace braid {
namespace {

class UpdateSplits {
 public:
  explicit UpdateSplits(Plan& plan) : plan_(plan), graph_(plan.program.graph) {}

  void run() {
    int split = 0;
    for (NodeId id = 0, nodes = graph_.size(); id < nodes; ++id)
      if (may_split(id)) {
        take_apart(id);
        ++split;
      }
    if (split == 0) return;
    plan_.note("updates", "rows of " + std::to_string(split) + " are grouped ahead, by " +
                              std::to_string(groupings_.size()));
  }

 private:
  struct Tables {
    std::vector<ValueRef> indices;
    std::vector<std::int64_t> rows;
  };
  using Key = std::tuple<std::vector<ValueRef>, std::vector<std::int64_t>, int, std::string>;

  bool may_split(NodeId id) const {
    const Node& node = graph_.node(id);
    return !node.removed && plan_.domain_of(id) == Domain::Device &&
           (node.op->name == "braid.SparseApplyOptimizer" ||
            node.op->name == "braid.SparseApplyOptimizerMany");
  }

  void take_apart(NodeId id) {
    const Node& node = graph_.node(id);
    std::vector<OutputInfo> infos;
    for (const ValueRef input : node.inputs) infos.push_back(graph_.info(input));
    const UpdateInputs in = update_inputs(node, infos, 2);
    const auto input = [&](int i) { return node.inputs[static_cast<std::size_t>(i)]; };

    Tables tables;
    std::vector<ValueRef> inputs;
    for (int v = 0; v < in.variables; ++v) {
      for (int i = in.handle(v); i < in.gradient(v); ++i) inputs.push_back(input(i));
      inputs.push_back(input(in.gradient(v) + 1));
      tables.indices.push_back(input(in.gradient(v)));
      tables.rows.push_back(infos[static_cast<std::size_t>(in.handle(v))].shape[0]);
    }
    inputs.push_back({grouping_of(node, std::move(tables)), 0});
    Node& update = graph_.mutable_node(id);
    update.op = &OpRegistry::global().require("braid.SparseApplyGrouped");
    update.inputs = std::move(inputs);
  }

  NodeId grouping_of(const Node& update, Tables tables) {
    const auto [known, is_new] =
        groupings_.try_emplace(Key{tables.indices, tables.rows, update.stream, update.device}, kNoNode);
    if (!is_new) return known->second;
    Node node;
    node.op = &OpRegistry::global().require("braid.GroupRows");
    node.name = graph_.unique_name(update.name + "/rows");
    node.attrs = {{"rows", std::move(tables.rows)}};
    node.inputs = std::move(tables.indices);
    node.stream = update.stream;
    node.device = update.device;
    plan_.domains.push_back(Domain::Device);
    return known->second = graph_.add(std::move(node));
  }

  Plan& plan_;
  Graph& graph_;
  std::map<Key, NodeId> groupings_;
};

}  // namespace

void split_updates(Plan& plan) {
  if (plan.options.streams.count > 1 && plan.options.streams.policy != StreamPolicy::None)
    UpdateSplits(plan).run();
}

}  // namespace braid
