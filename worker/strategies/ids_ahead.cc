#include "worker/strategies/ids_ahead.h"

#include <algorithm>
#include <utility>

#include "engine/ir/infer.h"
#include "engine/ir/op.h"
#include "worker/strategies/owner_ops.h"

namespace braid::worker {
namespace {

constexpr std::string_view kPrefix = "ids_ahead/";

}  // namespace

bool is_of_ids_ahead(std::string_view variable) { return variable.starts_with(kPrefix); }

IdsAhead::IdsAhead(TrainingGraph& training, int rank, int world, std::vector<ValueRef> values,
                   std::vector<std::int64_t> owners)
    : training_(training),
      rank_(rank),
      world_(world),
      values_(std::move(values)),
      owners_(std::move(owners)) {
  find_shapes();
}

void IdsAhead::find_shapes() {
  if (training_.feeds.empty()) return;
  const NextBatch next(training_.graph);
  Graph sized;  // what the values are made of
  std::vector<NodeId> copies(static_cast<std::size_t>(training_.graph.size()), kNoNode);
  const auto copy = [&](const auto& self, NodeId id) -> NodeId {
    NodeId& known = copies[static_cast<std::size_t>(id)];
    if (known != kNoNode) return known;
    Node node = training_.graph.node(id);
    for (ValueRef& input : node.inputs) input.node = self(self, input.node);
    node.control_inputs.clear();
    node.colocate_with = node.forward_of = kNoNode;
    return copies[static_cast<std::size_t>(id)] = sized.add(std::move(node));
  };
  std::vector<ValueRef> its;
  for (const ValueRef value : values_) {
    if (!next.can_make(value)) return;
    its.push_back({copy(copy, value.node), value.output});
  }
  std::vector<FeedInfo> feeds;
  for (FeedInfo feed : training_.feeds) {
    feed.value.node = copies[static_cast<std::size_t>(feed.value.node)];
    if (feed.value.node != kNoNode) feeds.push_back(std::move(feed));
  }
  infer_graph(sized, feeds);
  std::vector<Shape> shapes;
  for (const ValueRef value : its) {
    shapes.push_back(sized.info(value).shape);
    if (!shapes.back().is_static() || shapes.back().rank() < 1) return;
  }
  shapes_ = std::move(shapes);
}

const std::vector<ValueRef>& IdsAhead::received() {
  for (std::size_t v = 0; v < values_.size() && received_.size() < values_.size(); ++v) {
    const DType dtype = training_.graph.info(values_[v]).dtype;
    Shape shape = shapes_[v];
    if (owners_[v] != kStays) shape.set_dim(0, owners_[v] == rank_ ? shape[0] * world_ : 0);
    const std::string name = training_.graph.unique_name(std::string(kPrefix) + std::to_string(v));
    handles_.push_back(add_node(
        training_.graph, "VarHandleOp", name, {},
        {{"dtype", dtype}, {"shape", shape}, {"_trainable", false}, {"_init_kind", std::int64_t{0}}}));
    received_.push_back(
        add_node(training_.graph, "ReadVariableOp", name + "/read", {handles_.back()}, {{"dtype", dtype}}));
  }
  return received_;
}

void IdsAhead::exchange(const AddCollective& add_collective) {
  Graph& graph = training_.graph;
  NextBatch next(graph);
  Node node;
  node.name = graph.unique_name("to_owners/next_ids");
  std::vector<std::int64_t> owners;
  std::vector<ValueRef> kept;  // of what travels: its number among that
  for (std::size_t v = 0; v < values_.size(); ++v) {
    const ValueRef next_value = next.make(values_[v]);
    if (owners_[v] == kStays) {
      kept.push_back(next_value);
      continue;
    }
    kept.push_back({kNoNode, static_cast<int>(owners.size())});
    owners.push_back(owners_[v]);
    node.inputs.push_back(next_value);
  }
  node.attrs = {{kOwners, owners}, {"rank", static_cast<std::int64_t>(rank_)}};
  const NodeId id = add_collective(std::move(node), "braid.ToOwners");
  Node keep;
  keep.op = &OpRegistry::global().require("braid.KeepValues");
  keep.name = graph.unique_name("ids_ahead/keep");
  keep.inputs = handles_;
  for (const ValueRef value : kept)
    keep.inputs.push_back(value.node == kNoNode ? ValueRef{id, value.output} : value);
  training_.targets.push_back(keep.name);
  keep.attrs.set(kKeepsNext, true);
  graph.add(std::move(keep));
}

}  // namespace braid::worker
