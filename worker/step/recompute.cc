#include "worker/step/recompute.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "base/error.h"
#include "engine/ir/infer.h"
#include "engine/ir/op.h"

namespace braid::worker {
namespace {

using Nodes = std::vector<NodeId>;

/// The live nodes that `roots` depend on, by id.
std::vector<char> ancestors(const Graph& graph, Nodes open) {
  std::vector<char> found(static_cast<std::size_t>(graph.size()));
  for (const NodeId id : open) found[static_cast<std::size_t>(id)] = 1;
  const auto visit = [&](NodeId id) {
    if (found[static_cast<std::size_t>(id)]) return;
    found[static_cast<std::size_t>(id)] = 1;
    open.push_back(id);
  };
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    for (const ValueRef input : graph.node(id).inputs) visit(input.node);
    for (const NodeId control : graph.node(id).control_inputs) visit(control);
  }
  return found;
}

/// Nodes of the forward pass, which the loss depends on, and of the backward pass, which gradients do.
class Passes {
 public:
  explicit Passes(const TrainingGraph& training)
      : forward_(ancestors(training.graph, {training.loss.node, training.weighted_loss.node})) {
    Nodes gradients;
    for (const VariableGradient& gradient : training.gradients) {
      if (gradient.dense.valid()) gradients.push_back(gradient.dense.node);
      if (!gradient.slices) continue;
      gradients.push_back(gradient.slices->indices.node);
      gradients.push_back(gradient.slices->values.node);
    }
    backward_ = ancestors(training.graph, gradients);
  }
  bool forward(NodeId id) const { return at(forward_, id); }
  bool backward(NodeId id) const { return at(backward_, id) && !forward(id); }

 private:
  static bool at(const std::vector<char>& nodes, NodeId id) {
    return static_cast<std::size_t>(id) < nodes.size() && nodes[static_cast<std::size_t>(id)] != 0;
  }
  std::vector<char> forward_, backward_;
};

bool is_resource(const Graph& graph, ValueRef value) { return graph.info(value).dtype == DType::Resource; }

/// Whether a second run of the node gives the same, at a cost that is worth speaking of.
bool may_run_again(const Graph& graph, const Node& node) {
  const OpDef& op = *node.op;
  return !node.removed && !op.stateful && !op.side_effect && op.lane == Lane::Compute &&
         (op.role == OpRole::Ordinary || op.role == OpRole::Identity) && !node.inputs.empty() &&
         std::none_of(node.inputs.begin(), node.inputs.end(),
                      [&](ValueRef input) { return is_resource(graph, input); });
}

/// A product, or another op that computes with weights of two axes and more, as convolutions do.
bool is_product(const Graph& graph, const Node& node) {
  if (node.op->product.transpose_a) return true;
  return node.op->traits.elements == Elements::Computes &&
         std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueRef input) {
           const Shape& shape = graph.info(input).shape;
           return graph.node(input.node).op->role == OpRole::Read && shape.has_rank() && shape.rank() >= 2;
         });
}

class Recomputation {
 public:
  explicit Recomputation(TrainingGraph& training)
      : graph_(training.graph), passes_(training), loss_(training.weighted_loss.node) {
    order_ = graph_.topological_order();
    find_users();
  }

  std::int64_t run(const RecomputedParts& parts) {
    std::map<std::int64_t, Nodes> by_part;  // inputs first
    for (const NodeId id : order_)
      if (const auto part = parts.find(id); part != parts.end() && passes_.forward(id)) {
        if (may_run_again(graph_, graph_.node(id))) by_part[part->second].push_back(id);
      }
    std::int64_t copies = 0;
    for (auto part = by_part.rbegin(); part != by_part.rend(); ++part) copies += copy(part->second);
    return copies;
  }

 private:
  struct Use {
    NodeId node = kNoNode;
    std::size_t input = 0;
  };

  void find_users() {
    users_.resize(static_cast<std::size_t>(graph_.size()));
    for (const NodeId id : order_) {
      const Node& node = graph_.node(id);
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        users_[static_cast<std::size_t>(node.inputs[i].node)].push_back({id, i});
    }
  }
  const std::vector<Use>& users(NodeId id) const { return users_[static_cast<std::size_t>(id)]; }

  /// Uses of an output by the backward pass; none where the forward pass needs it outside of the part anyway.
  std::vector<Use> late_uses(ValueRef value, const std::set<NodeId>& part) const {
    std::vector<Use> late;
    for (const Use& use : users(value.node)) {
      const Node& node = graph_.node(use.node);
      if (node.inputs[use.input] != value || reads_shape_only(node, use.input)) continue;
      if (passes_.backward(use.node))
        late.push_back(use);
      else if (!part.contains(use.node))
        return {};
    }
    return late;
  }

  std::int64_t copy(const Nodes& nodes) {
    const std::set<NodeId> part(nodes.begin(), nodes.end());
    std::map<ValueRef, std::vector<Use>> uses;
    for (const NodeId id : nodes)
      for (int o = 0; o < static_cast<int>(graph_.node(id).outputs.size()); ++o)
        if (std::vector<Use> late = late_uses({id, o}, part); !late.empty())
          uses.emplace(ValueRef{id, o}, std::move(late));
    if (uses.empty()) return 0;
    const std::set<NodeId> again = nodes_to_copy(part, uses);
    const Nodes gradients = incoming_gradients(uses);
    std::map<NodeId, NodeId> copies;
    for (const NodeId id : nodes) {
      if (!again.contains(id)) continue;
      Node node = graph_.node(id);
      node.id = kNoNode;
      node.name = graph_.unique_name(node.name + "/again");
      node.outputs.clear();
      node.known_values.clear();
      bool waits = false;
      for (ValueRef& input : node.inputs)
        if (const auto copied = copies.find(input.node); copied != copies.end()) {
          input.node = copied->second;
          waits = true;
        }
      if (!waits) node.control_inputs.insert(node.control_inputs.end(), gradients.begin(), gradients.end());
      copies[id] = graph_.add(std::move(node));
    }
    users_.resize(static_cast<std::size_t>(graph_.size()));
    for (const auto& [original, made] : copies)
      for (std::size_t i = 0; i < graph_.node(made).inputs.size(); ++i)
        users_[static_cast<std::size_t>(graph_.node(made).inputs[i].node)].push_back({made, i});
    for (const auto& [value, late] : uses)
      for (const Use& use : late) {
        const ValueRef made{copies.at(value.node), value.output};
        graph_.mutable_node(use.node).inputs[use.input] = made;
        users_[static_cast<std::size_t>(made.node)].push_back(use);
      }
    return static_cast<std::int64_t>(copies.size());
  }

  /// Those of the part that the used values are made from, up to what is kept.
  std::set<NodeId> nodes_to_copy(const std::set<NodeId>& part,
                                 const std::map<ValueRef, std::vector<Use>>& uses) const {
    std::set<NodeId> again;
    Nodes open;
    for (const auto& [value, late] : uses)
      if (again.insert(value.node).second) open.push_back(value.node);
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      for (const ValueRef input : graph_.node(id).inputs)
        if (part.contains(input.node) && !is_kept(input, part) && again.insert(input.node).second)
          open.push_back(input.node);
    }
    return again;
  }

  /// The forward pass reads it outside of the part, so that the backward pass may.
  bool is_kept(ValueRef value, const std::set<NodeId>& part) const {
    return std::any_of(users(value.node).begin(), users(value.node).end(), [&](const Use& use) {
      const Node& node = graph_.node(use.node);
      return node.inputs[use.input] == value && !passes_.backward(use.node) && !part.contains(use.node) &&
             !reads_shape_only(node, use.input) && passes_.forward(use.node);
    });
  }

  /// What the part's backward nodes read that is made before any of them, so that nothing waits for itself.
  Nodes incoming_gradients(const std::map<ValueRef, std::vector<Use>>& uses) const {
    std::vector<char> below(static_cast<std::size_t>(graph_.size()));
    for (const auto& [value, late] : uses)
      for (const Use& use : late) below[static_cast<std::size_t>(use.node)] = 1;
    for (const NodeId id : graph_.topological_order()) {
      const Node& node = graph_.node(id);
      auto& is_below = below[static_cast<std::size_t>(id)];
      for (const ValueRef input : node.inputs) is_below |= below[static_cast<std::size_t>(input.node)];
      for (const NodeId control : node.control_inputs) is_below |= below[static_cast<std::size_t>(control)];
    }
    std::set<NodeId> gradients{loss_};
    for (const auto& [value, late] : uses)
      for (const Use& use : late)
        for (const ValueRef input : graph_.node(use.node).inputs)
          if (passes_.backward(input.node) && !below[static_cast<std::size_t>(input.node)])
            gradients.insert(input.node);
    return {gradients.begin(), gradients.end()};
  }

  Graph& graph_;
  const Passes passes_;
  const NodeId loss_;
  Nodes order_;
  std::vector<std::vector<Use>> users_;
};

/// Sets that are joined now and then.
class Unions {
 public:
  explicit Unions(std::size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), 0); }
  std::size_t root(std::size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(std::size_t a, std::size_t b) {
    parent_[std::max(root(a), root(b))] = std::min(root(a), root(b));
  }

 private:
  std::vector<std::size_t> parent_;
};

/// Nodes that hang together are one part, numbered by the first.
RecomputedParts connected(const Graph& graph, const std::set<NodeId>& nodes) {
  Unions unions(static_cast<std::size_t>(graph.size()));
  for (const NodeId id : nodes)
    for (const ValueRef input : graph.node(id).inputs)
      if (nodes.contains(input.node))
        unions.join(static_cast<std::size_t>(id), static_cast<std::size_t>(input.node));
  RecomputedParts parts;
  for (const NodeId id : nodes)
    parts[id] = static_cast<std::int64_t>(unions.root(static_cast<std::size_t>(id)));
  return parts;
}

/// In the order of the forward pass.
Nodes nodes_that_may_run_again(const TrainingGraph& training, const Passes& passes) {
  Nodes nodes;
  for (const NodeId id : training.graph.topological_order())
    if (passes.forward(id) && may_run_again(training.graph, training.graph.node(id))) nodes.push_back(id);
  return nodes;
}

}  // namespace

RecomputedParts parts_by_name(const TrainingGraph& training, const std::vector<std::string>& patterns) {
  const Graph& graph = training.graph;
  const Passes passes(training);
  const Nodes nodes = nodes_that_may_run_again(training, passes);
  RecomputedParts parts;
  std::map<std::string, std::int64_t> numbers;
  for (const std::string& text : patterns) {
    const RE2 pattern(text, RE2::Quiet);
    const std::string field = "runtime.recompute.scope '" + text + "'";
    if (!pattern.ok()) throw InvalidArgument(field + " is no regular expression: " + pattern.error());
    std::set<NodeId> without_group;
    bool fits = false;
    for (const NodeId id : nodes) {
      std::string group;
      const bool matches = pattern.NumberOfCapturingGroups() > 0
                               ? RE2::FullMatch(graph.node(id).name, pattern, &group)
                               : RE2::FullMatch(graph.node(id).name, pattern);
      if (!matches) continue;
      fits = true;
      if (parts.contains(id)) continue;
      if (pattern.NumberOfCapturingGroups() == 0)
        without_group.insert(id);
      else
        parts[id] = numbers.try_emplace(group, id).first->second;
    }
    if (!fits) throw InvalidArgument(field + " fits no node of the forward pass that can be computed again");
    for (const auto& [id, part] : connected(graph, without_group)) parts[id] = part;
  }
  return parts;
}

std::int64_t recompute(TrainingGraph& training, const RecomputedParts& parts) {
  return Recomputation(training).run(parts);
}

RecomputeChoice parts_that_fit(const TrainingGraph& training, std::uint64_t bytes,
                               const EstimateStep& estimate) {
  const Passes passes(training);
  const Graph& graph = training.graph;
  const Nodes nodes = nodes_that_may_run_again(training, passes);
  std::vector<RecomputeChoice> choices{{{}, "nothing is computed again"}};
  std::set<NodeId> cheap;
  std::int64_t products = 0;
  for (const NodeId id : nodes) {
    if (is_product(graph, graph.node(id)))
      ++products;
    else
      cheap.insert(id);
  }
  choices.push_back({connected(graph, cheap), "what is no product is computed again"});
  for (std::int64_t size = 1, step = 1; size <= products; size += step) {
    if (size >= 4 && (size & (size - 1)) == 0) step = size / 2;
    RecomputeChoice choice{{}, fmt::format("parts of {} products are computed again", size)};
    std::int64_t before = 0;
    for (const NodeId id : nodes) {
      choice.parts[id] = before / size;
      if (is_product(graph, graph.node(id))) ++before;
    }
    choices.push_back(std::move(choice));
  }
  const auto estimate_choice = [&](std::size_t c) {
    TrainingGraph candidate = training;
    recompute(candidate, choices[c].parts);
    return estimate(candidate);
  };
  const auto [best, its] = cheapest_that_fits(
      "runtime.recompute.memory_bytes", bytes, choices.size(), estimate_choice,
      "with what can be computed again; optimizer.accumulate_steps makes its parts smaller");
  choices[best].text += fmt::format(": {:.1f} MB, modelled {:.0f} us a step",
                                    static_cast<double>(its.bytes) / 1e6, its.cost_us);
  return std::move(choices[best]);
}

std::pair<std::size_t, StepEstimate> cheapest_that_fits(
    std::string_view field, std::uint64_t bytes, std::size_t count,
    const std::function<StepEstimate(std::size_t)>& estimate, std::string_view advice) {
  std::optional<std::pair<std::size_t, StepEstimate>> best;
  std::uint64_t least = UINT64_MAX;
  for (std::size_t choice = 0; choice < count; ++choice) {
    const StepEstimate found = estimate(choice);
    least = std::min(least, found.bytes);
    if (found.bytes <= bytes && (!best || found.cost_us < best->second.cost_us)) best = {choice, found};
  }
  if (!best)
    throw InvalidArgument(fmt::format("{} is {}: a step takes {} at least, {}", field, bytes, least, advice));
  return *best;
}

}  // namespace braid::worker
