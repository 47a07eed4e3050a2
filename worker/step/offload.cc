#include "worker/step/offload.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/ir/infer.h"
#include "engine/ir/offload_attrs.h"
#include "engine/ir/op.h"

namespace braid::worker {
namespace {

constexpr int kEighths = 8;
constexpr std::size_t kAhead = 2;  // updates whose states are on the device at once

/// The state as a value on the device, not before `gradient` is near: what that is made from is there.
ValueRef fetched(Graph& graph, ValueRef slot, ValueRef gradient) {
  graph.mutable_node(slot.node).attrs.set(kOnHost, true);
  Node node;
  node.op = &OpRegistry::global().require("braid.FetchState");
  node.name = graph.unique_name(graph.node(slot.node).name + "/back");
  node.inputs = {slot};
  node.attrs = {{kInArena, true}, {"dtype", DType::Float32}};
  for (const ValueRef source : graph.node(gradient.node).inputs)
    if (graph.info(source).dtype != DType::Resource) node.control_inputs.push_back(source.node);
  return {graph.add(std::move(node)), 0};
}

NodeId add_store(TrainingGraph& training, ValueRef slot, ValueRef value) {
  Graph& graph = training.graph;
  Node node;
  node.op = &OpRegistry::global().require("braid.StoreState");
  node.name = graph.unique_name(graph.node(slot.node).name + "/stored");
  node.inputs = {slot, value};
  training.targets.push_back(node.name);
  return graph.add(std::move(node));
}

/// Updates by their gradients' places in an order of the graph: none waits for a later one.
std::vector<NodeId> updates_in_order(const Graph& graph) {
  const OpDef& update = OpRegistry::global().require("braid.ApplyOptimizer");
  std::vector<std::size_t> position(static_cast<std::size_t>(graph.size()));
  std::vector<NodeId> updates;
  const std::vector<NodeId> order = graph.topological_order();
  for (std::size_t at = 0; at < order.size(); ++at) {
    position[static_cast<std::size_t>(order[at])] = at;
    if (graph.node(order[at]).op == &update) updates.push_back(order[at]);
  }
  std::ranges::stable_sort(updates, {}, [&](NodeId id) {
    return position[static_cast<std::size_t>(graph.node(id).inputs.back().node)];
  });
  return updates;
}

/// An update whose states are on the host.
struct Offloaded {
  NodeId update = kNoNode;
  std::vector<NodeId> stores;
};

}  // namespace

OffloadChoice share_that_fits(std::uint64_t bytes,
                              const std::function<StepEstimate(double share)>& estimate) {
  const auto [eighths, its] = cheapest_that_fits(
      "runtime.offload.memory_bytes", bytes, kEighths + 1,
      [&](std::size_t choice) { return estimate(static_cast<double>(choice) / kEighths); },
      "with what can be offloaded; runtime.recompute.scope and optimizer.accumulate_steps make it smaller");
  return {
      static_cast<double>(eighths) / kEighths,
      fmt::format("{} of 8 parts of what rests are offloaded: {:.1f} MB on the device, modelled {:.0f} us "
                  "a step",
                  eighths, static_cast<double>(its.bytes) / 1e6, its.cost_us)};
}

std::uint64_t offload_states(TrainingGraph& training) {
  Graph& graph = training.graph;
  std::uint64_t moved = 0;
  std::vector<Offloaded> before;
  for (const NodeId id : updates_in_order(graph)) {
    const std::vector<ValueRef> inputs = graph.node(id).inputs;
    const std::vector<ValueRef> slots(inputs.begin() + 1, inputs.end() - 1);
    const VariableInfo variable = variable_of(graph, inputs[0]);
    const auto bytes = static_cast<std::uint64_t>(variable.shape.elements()) * dtype_size(variable.dtype);
    if (slots.empty() || bytes < kLeastOffloaded) continue;
    // Memory is that of few updates: their states, and gradients that wait for them.
    const Offloaded* const some_way_before =
        before.size() < kAhead ? nullptr : &before[before.size() - kAhead];
    if (some_way_before && graph.node(inputs.back().node).op->lane == Lane::Compute)
      graph.mutable_node(inputs.back().node).control_inputs.push_back(some_way_before->update);
    Offloaded now{id, {}};
    std::vector<ValueRef> values{inputs[0]};
    for (const ValueRef slot : slots) {
      values.push_back(fetched(graph, slot, inputs.back()));
      if (!some_way_before) continue;
      std::vector<NodeId>& waits = graph.mutable_node(values.back().node).control_inputs;
      waits.insert(waits.end(), some_way_before->stores.begin(), some_way_before->stores.end());
    }
    values.push_back(inputs.back());
    graph.mutable_node(id).op = &OpRegistry::global().require("braid.ApplyOptimizerTo");
    graph.mutable_node(id).inputs = std::move(values);
    infer_node(graph, id);
    for (std::size_t s = 0; s < slots.size(); ++s)
      now.stores.push_back(add_store(training, slots[s], {id, static_cast<int>(s)}));
    before.push_back(std::move(now));
    moved += bytes * slots.size();
  }
  return moved;
}

}  // namespace braid::worker
