// On a device, gathers of few rows cost their launches: replaces groups of ResourceGather nodes with one
// braid.GatherMany each, and of braid.Bag nodes that pool alike with one braid.BagMany. A group has one type,
// the same control inputs, and as many gathers before each member, so that none waits for another. Gathers
// behind writes of variables form a group where all these writes are one node's, the same for all: else
// tables may be written before or after them, and one order for all might not exist. Left alone are fed
// gathers and those that others are colocated with. Who put two on different streams keeps them apart, and
// policy EMBEDDING, which spreads tables over streams, keeps all gathers. Those that have turns
// (gather_turns.h) are groups that run one after another. A rule of groups (rule.h).
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "engine/ops/common/gather_turns.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/sparse/bag_args.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

const Pattern& bag() {
  static const Pattern pattern{"braid.Bag"};
  return pattern;
}
const Pattern& gather() {
  static const Pattern pattern{"ResourceGather", "braid.Bag"};
  return pattern;
}

class GatherGroups {
 public:
  explicit GatherGroups(Plan& plan) : plan_(plan), graph_(plan.program.graph) {}

  void run() {
    find_depths();
    const Grouped grouped = join_groups(
        graph_, order_, gather(), [this](const Node& node) { return key_of(node); },
        [this](const std::vector<NodeId>& group) { return merge(group); });
    if (grouped.groups > 0)
      plan_.note(std::to_string(grouped.nodes) + " became " + std::to_string(grouped.groups));
  }

 private:
  static constexpr NodeId kSeveral = -2;

  struct Key {
    int depth;  // gathers on the longest path to it
    DType dtype;
    int stream;
    NodeId colocate_with;
    std::string device;
    NodeId writer;  // that all writes before it are of; kNoNode: there are none
    std::vector<NodeId> control_inputs;
    std::string op, pooling;
    bool ragged, weighted;
    std::int64_t turn;
    auto operator<=>(const Key&) const = default;
  };

  /// None for a gather that stays alone.
  std::optional<Key> key_of(const Node& node) const {
    const NodeId writer = writers_[static_cast<std::size_t>(node.id)];
    if (writer == kSeveral || awaited_.contains(node.id) || plan_.is_fed(node) ||
        plan_.domain_of(node.id) != Domain::Device || graph_.known_value({node.id, 0}))
      return std::nullopt;
    Key key{depths_[static_cast<std::size_t>(node.id)],
            node.outputs[0].dtype,
            node.stream,
            node.colocate_with,
            node.device,
            writer,
            node.control_inputs,
            node.op->name,
            node.attrs.get(kPooling, std::string()),
            node.attrs.get(kRagged, false),
            node.attrs.get(kBagWeights, false),
            node.attrs.get(kGatherTurn, std::int64_t{0})};
    std::sort(key.control_inputs.begin(), key.control_inputs.end());
    return key;
  }

  static bool writes(const OpDef& op) {
    const auto is_write = [](Access access) {
      return access == Access::Write || access == Access::ReadWrite;
    };
    return is_write(op.further_handles) || std::any_of(op.handles.begin(), op.handles.end(), is_write);
  }

  void find_depths() {
    depths_.assign(static_cast<std::size_t>(graph_.size()), 0);
    writers_.assign(depths_.size(), kNoNode);
    awaited_.insert(plan_.targets.begin(), plan_.targets.end());
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      if (node.removed) continue;
      awaited_.insert(node.colocate_with);
      awaited_.insert(node.control_inputs.begin(), node.control_inputs.end());
    }
    for (const NodeId id : order_) {
      const Node& node = graph_.node(id);
      int& depth = depths_[static_cast<std::size_t>(id)];
      NodeId& writer = writers_[static_cast<std::size_t>(id)];
      const auto add_writer = [&](NodeId its) {
        if (its != kNoNode && its != writer) writer = writer == kNoNode ? its : kSeveral;
      };
      const auto follow = [&](NodeId from) {
        const Node& before = graph_.node(from);
        if (before.removed || plan_.is_fed(before)) return;
        depth = std::max(depth, depths_[static_cast<std::size_t>(from)] + (gather().names(before) ? 1 : 0));
        add_writer(writers_[static_cast<std::size_t>(from)]);
        if (writes(*before.op)) add_writer(from);
      };
      for (const ValueRef input : node.inputs) follow(input.node);
      for (const NodeId control : node.control_inputs) follow(control);
    }
  }

  NodeId merge(const std::vector<NodeId>& group) {
    const Node& first = graph_.node(group.front());
    Node many;
    many.op = &OpRegistry::global().require(bag().names(first) ? "braid.BagMany" : "braid.GatherMany");
    many.name = graph_.unique_name(first.name + "/and_" + std::to_string(group.size() - 1));
    many.attrs = {{"dtype", first.attrs.get("dtype", first.outputs[0].dtype)}};
    if (bag().names(first))
      for (const char* name : {kPooling, kRagged, kBagWeights})
        if (const Attr* value = first.attrs.find(name)) many.attrs.set(name, *value);
    if (first.attrs.has(kHalfOutputs)) {
      std::vector<std::int64_t> all(group.size());
      std::iota(all.begin(), all.end(), 0);
      many.attrs.set(kHalfOutputs, std::move(all));
      many.attrs.set(kHalfType, first.outputs[0].dtype);
    }
    many.control_inputs = first.control_inputs;
    const auto turn = first.attrs.get(kGatherTurn, std::int64_t{0});
    const int depth = depths_[static_cast<std::size_t>(first.id)];
    if (const auto before = by_turn_.find({depth, turn - 1}); before != by_turn_.end())
      many.control_inputs.push_back(before->second);
    many.stream = first.stream;
    many.colocate_with = first.colocate_with;
    many.device = first.device;
    for (const NodeId member : group) {
      const auto& inputs = graph_.node(member).inputs;
      many.inputs.insert(many.inputs.end(), inputs.begin(), inputs.end());
    }
    plan_.domains.push_back(Domain::Device);
    const NodeId id = graph_.add(std::move(many));
    by_turn_[{depth, turn}] = id;
    std::map<ValueRef, ValueRef> replaced;
    for (int k = 0; k < static_cast<int>(group.size()); ++k)
      replaced[{group[static_cast<std::size_t>(k)], 0}] = {id, k};
    graph_.replace_uses(replaced);
    for (ValueRef& fetch : plan_.fetches)
      if (const auto found = replaced.find(fetch); found != replaced.end()) fetch = found->second;
    return id;
  }

  Plan& plan_;
  Graph& graph_;
  const std::vector<NodeId> order_ = graph_.topological_order();
  std::vector<int> depths_;                                 // by node
  std::vector<NodeId> writers_;                             // the same: as Key::writer, or kSeveral
  std::map<std::pair<int, std::int64_t>, NodeId> by_turn_;  // what was made of those of a depth and a turn
  std::set<NodeId> awaited_;  // targets, and nodes that others wait for or are colocated with
};

}  // namespace

void group_gathers(Plan& plan) {
  const bool spreads = plan.options.streams.policy == StreamPolicy::Embedding;
  if (!spreads) GatherGroups(plan).run();
}

}  // namespace braid
