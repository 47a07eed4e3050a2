// The stream of every op. Nodes of a lane other than Compute go to that lane's stream. For the others the
// sources are, strongest first: colocation, the hand-set id of the innermost scope, the stream of the forward
// node (backward nodes, unless told not to), and then the policy (engine/passes/stream_policy.h).
//
// Colocation: a node adopts its target's id, whatever its own scope says. Where no target has an id, the
// group adopts the one id that its members have; two different ones are refused.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "engine/ops/op.h"
#include "engine/passes/plan.h"
#include "engine/passes/stream_policy.h"

namespace braid {
namespace {

class Pins {
 public:
  explicit Pins(const Plan& plan) : plan_(plan), graph_(plan.program.graph) {}

  StreamPins make() {
    const auto n = static_cast<std::size_t>(graph_.size());
    by_node_.assign(n, kNoStream);
    if (plan_.options.streams.policy == StreamPolicy::None) {
      for (const NodeId id : live()) hand_set_ += graph_.node(id).stream != kNoStream;
    } else {
      check_ids();
      apply_scopes();
      apply_colocation();
      if (plan_.options.streams.grad_follows_forward) apply_forward();
    }
    return collect();
  }

 private:
  std::vector<NodeId> live() const {
    std::vector<NodeId> ids;
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (!graph_.node(id).removed) ids.push_back(id);
    return ids;
  }
  int& pin(NodeId id) { return by_node_[static_cast<std::size_t>(id)]; }

  void check_ids() const {
    const int count = plan_.options.streams.count;
    for (const NodeId id : live()) {
      const Node& node = graph_.node(id);
      if (node.stream == kNoStream || (node.stream >= 0 && node.stream < count)) continue;
      throw InvalidArgument(
          fmt::format("{}: stream {} does not exist; the program has {} compute stream{} (0 to {})",
                      place_of(node), node.stream, count, count == 1 ? "" : "s", count - 1));
    }
  }

  void apply_scopes() {
    for (const NodeId id : live()) {
      pin(id) = graph_.node(id).stream;
      hand_set_ += pin(id) != kNoStream;
    }
  }

  /// The node at the end of the chain of targets.
  NodeId root(NodeId id) const {
    for (int steps = 0; graph_.node(id).colocate_with != kNoNode; ++steps) {
      const NodeId target = graph_.node(id).colocate_with;
      if (steps > graph_.size()) throw InvalidArgument(place_of(graph_.node(id)) + ": colocated with itself");
      if (graph_.node(target).removed && graph_.node(target).stream == kNoStream) break;
      id = target;
    }
    return id;
  }

  void apply_colocation() {
    std::map<NodeId, std::vector<NodeId>> groups;
    for (const NodeId id : live())
      if (graph_.node(id).colocate_with != kNoNode) groups[root(id)].push_back(id);
    for (const auto& [target, members] : groups) {
      int id = graph_.node(target).stream;
      NodeId from = target;
      for (const NodeId member : members) {
        const int own = graph_.node(member).stream;
        if (graph_.node(target).stream != kNoStream || own == kNoStream || own == id) continue;
        if (id != kNoStream)
          throw InvalidArgument(fmt::format("{} is on stream {} and {} on stream {}, but they are colocated",
                                            place_of(graph_.node(from)), id, place_of(graph_.node(member)),
                                            own));
        id = own;
        from = member;
      }
      pin(target) = id;
      for (const NodeId member : members) pin(member) = id;
      if (id != kNoStream) continue;
      group_[target] = target;
      for (const NodeId member : members) group_[member] = target;
    }
  }

  void apply_forward() {
    for (const NodeId id : live()) {
      const Node& node = graph_.node(id);
      if (pin(id) != kNoStream || node.forward_of == kNoNode || node.colocate_with != kNoNode) continue;
      const Node& forward = graph_.node(node.forward_of);
      if (forward.include_grad) pin(id) = forward.removed ? forward.stream : pin(node.forward_of);
    }
  }

  StreamPins collect() const {
    StreamPins pins;
    pins.hand_set = hand_set_;
    std::map<NodeId, int> leaders;  // by a group's target
    for (int op = 0; op < plan_.ops(); ++op) {
      const NodeId node = plan_.op(op).node;
      pins.stream.push_back(node == kNoNode ? kNoStream : by_node_[static_cast<std::size_t>(node)]);
      const auto target = group_.find(node);
      pins.leader.push_back(target == group_.end() ? op
                                                   : leaders.try_emplace(target->second, op).first->second);
    }
    return pins;
  }

  const Plan& plan_;
  const Graph& graph_;
  std::vector<int> by_node_;
  std::map<NodeId, NodeId> group_;  // of groups without an id: each node's target
  int hand_set_ = 0;
};

constexpr Lane kLanes[] = {Lane::Pull, Lane::Push, Lane::Comm, Lane::HostToDevice, Lane::DeviceToHost};

Lane lane_of(const Plan& plan, int op) {
  return plan.op(op).kind == OpKind::Kernel ? plan.node_of(op)->op->lane : Lane::Compute;
}

void make_streams(Plan& plan) {
  Program& program = plan.program;
  for (int s = 0; s < program.compute_streams; ++s)
    program.streams.push_back({fmt::format("compute{}", s), "compute"});
  for (const Lane lane : kLanes) {
    const std::string name(lane_name(lane));
    bool used = false;
    for (int op = 0; op < plan.ops(); ++op) {
      if (lane_of(plan, op) != lane) continue;
      plan.op(op).stream = static_cast<int>(program.streams.size());
      used = true;
    }
    if (used) program.streams.push_back({name, name, lane});
  }
}

}  // namespace

void assign_streams(Plan& plan) {
  const StreamOptions& options = plan.options.streams;
  if (options.count < 1)
    throw InvalidArgument(fmt::format("a program needs at least one compute stream, got {}", options.count));
  Program& program = plan.program;
  program.compute_streams = options.count;
  const StreamPins pins = Pins(plan).make();
  make_streams(plan);
  std::vector<int> lanes(static_cast<std::size_t>(plan.ops()), kNoStream);
  for (int op = 0; op < plan.ops(); ++op)
    if (lane_of(plan, op) != Lane::Compute) lanes[static_cast<std::size_t>(op)] = plan.op(op).stream;
  const std::vector<int> streams = apply_policy(plan, pins, lanes);
  for (int op = 0; op < plan.ops(); ++op) plan.op(op).stream = streams[static_cast<std::size_t>(op)];
}

}  // namespace braid
