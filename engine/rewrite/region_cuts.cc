#include "engine/rewrite/region_cuts.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/program/cost_model.h"
#include "engine/rewrite/rewrite.h"

namespace braid {
namespace {

constexpr int kMostLayers = 12;
constexpr std::size_t kMostRepeatedSteps = 8;  // of a node that is repeated
/// Launches that a cut saves at least: values that stay in a device's cache cost less than the model says,
/// and what is computed again makes small kernels longer.
constexpr double kWorthwhileLaunches = 2;

/// What is repeated are casts, constants and the like, which are many and cost little.
constexpr RegionLimits kLimits{.nodes = 128};

struct RegionNodes {
  std::vector<NodeId> own;       // in topological order
  std::vector<NodeId> repeated;  // other regions' own ones, which are computed here too
};

class RegionCutter {
 public:
  RegionCutter(const Plan& plan, const Users& users, NodeStepsCache& steps, const NodeOrder& order,
               std::vector<std::vector<NodeId>> regions)
      : plan_(plan), graph_(plan.program.graph), users_(users), steps_(steps), order_(order) {
    for (std::size_t r = 0; r < regions.size(); ++r) {
      for (const NodeId id : regions[r]) {
        owner_[id] = static_cast<int>(r);
        held_by_[id] = {static_cast<int>(r)};
      }
      regions_.push_back({std::move(regions[r]), {}});
    }
  }

  std::vector<FusedRegion> cut() {
    for (int region = 0; region < static_cast<int>(regions_.size()); ++region) {
      const auto made = make(region);
      if (!made) continue;
      for (const ValueRef input : made->inputs) repeat_behind(region, equals_of(input, made->inputs));
    }
    std::optional<std::vector<FusedRegion>> found;
    while (!found) found = made();
    return std::move(*found);
  }

 private:
  static int of(const std::vector<int>& by_node, NodeId id) { return by_node[static_cast<std::size_t>(id)]; }
  RegionNodes& at(int region) { return regions_[static_cast<std::size_t>(region)]; }
  int owner_of(NodeId id) const {
    const auto found = owner_.find(id);
    return found == owner_.end() ? -1 : found->second;
  }
  bool holds(int region, NodeId id) const {
    const auto found = held_by_.find(id);
    return found != held_by_.end() && found->second.contains(region);
  }

  /// Whether its region has to write it: a reader is in no region, or in one that does not compute the value.
  bool is_written(ValueRef value) const {
    return is_needed(plan_, users_, steps_, value, [&](NodeId reader) {
      const auto found = held_by_.find(reader);
      return found != held_by_.end() && !found->second.empty() &&
             std::all_of(found->second.begin(), found->second.end(),
                         [&](int region) { return holds(region, value.node); });
    });
  }

  std::optional<FusedRegion> make(int region) {
    std::vector<NodeId> nodes = at(region).own;
    nodes.insert(nodes.end(), at(region).repeated.begin(), at(region).repeated.end());
    std::sort(nodes.begin(), nodes.end(),
              [&](NodeId a, NodeId b) { return of(order_.position, a) < of(order_.position, b); });
    return make_region(
        plan_, steps_, nodes,
        [&](ValueRef value) { return owner_of(value.node) == region && is_written(value); }, kLimits);
  }

  double bytes_of(ValueRef value) const {
    const OutputInfo& info = graph_.info(value);
    return static_cast<double>(info.shape.elements()) * static_cast<double>(dtype_size(info.dtype));
  }

  /// Each element once, and of a wider tensor the part.
  static double bytes_read(const fusion::Region::Input& input) {
    auto bytes = static_cast<double>(dtype_size(input.dtype));
    for (const fusion::Axis& axis : input.axes)
      if (axis.stride != 0) bytes *= static_cast<double>(axis.size);
    return bytes;
  }

  /// Nothing where the region cannot be made.
  std::optional<double> cost_us(int region) {
    const auto [known, is_new] = costs_.try_emplace(region);
    if (is_new) known->second = computed_cost_us(region);
    return known->second;
  }

  std::optional<double> computed_cost_us(int region) {
    if (at(region).own.empty()) return 0;
    const auto made = make(region);
    if (!made) return std::nullopt;
    const CostModel& costs = cost_model(plan_.options.domain);
    double bytes = 0, flops = 0;
    for (const fusion::Region::Input& input : made->program.inputs) bytes += bytes_read(input);
    for (const std::vector<ValueRef>& same : made->outputs) bytes += bytes_of(same[0]);
    for (const std::vector<NodeId>& nodes : {at(region).own, at(region).repeated})
      for (const NodeId id : nodes) flops += modelled_cost(graph_, graph_.node(id)).flops;
    return costs.kernel_us + bytes / costs.bytes_per_us + flops / costs.flops_per_us;
  }

  std::optional<double> cost_us(const std::set<int>& regions) {
    double sum = 0;
    for (const int region : regions) {
      const auto cost = cost_us(region);
      if (!cost) return std::nullopt;
      sum += *cost;
    }
    return sum;
  }

  /// All of them; nothing where one cannot be made as it has become. Its nodes stay by themselves then, and
  /// what they read is written by the others.
  std::optional<std::vector<FusedRegion>> made() {
    std::vector<FusedRegion> found;
    for (int region = 0; region < static_cast<int>(regions_.size()); ++region) {
      if (at(region).own.empty()) continue;
      auto made = make(region);
      if (!made) {
        give_up(region);
        return std::nullopt;
      }
      made->nodes = at(region).own;
      made->repeats = !at(region).repeated.empty();
      found.push_back(std::move(*made));
    }
    return found;
  }

  void give_up(int region) {
    for (const std::vector<NodeId>& list : {at(region).own, at(region).repeated})
      for (const NodeId id : list) held_by_[id].erase(region);
    at(region) = {};
  }

  bool is_repeatable(NodeId id, int region) {
    const fusion::NodeSteps* steps = steps_.of(id);
    if (owner_of(id) < 0 || !steps || steps->steps.size() > kMostRepeatedSteps) return false;
    const NodeId member = at(region).own.front();
    if (of(order_.stream, id) != of(order_.stream, member) || !together(graph_.node(id), graph_.node(member)))
      return false;
    return std::all_of(steps->steps.begin(), steps->steps.end(), [](const fusion::Region::Step& step) {
      using Kind = fusion::Region::Kind;
      return step.kind == Kind::Apply || step.kind == Kind::Cast || step.kind == Kind::Constant;
    });
  }

  std::vector<ValueRef> sources_of(NodeId id) {
    std::vector<ValueRef> sources;
    for (const fusion::NodeSteps::Input& input : steps_.of(id)->inputs)
      sources.push_back(steps_.source(plan_, graph_.node(id).inputs[static_cast<std::size_t>(input.input)]));
    return sources;
  }

  /// The values among `inputs` that are computed as `value` is, which all have one place in memory: each
  /// reader of a half has a Cast of its own.
  std::vector<ValueRef> equals_of(ValueRef value, const std::vector<ValueRef>& inputs) const {
    std::vector<ValueRef> equals;
    const Node& node = graph_.node(value.node);
    for (const ValueRef input : inputs) {
      const Node& other = graph_.node(input.node);
      if (input == value || (owner_of(input.node) >= 0 && owner_of(input.node) == owner_of(value.node) &&
                             input.output == value.output && other.op == node.op &&
                             other.inputs == node.inputs && same_attributes(other, node)))
        equals.push_back(input);
    }
    return equals;
  }

  /// Those behind what is read that may be repeated, and are not in memory for others anyway.
  std::vector<NodeId> layer_behind(int region, const std::vector<ValueRef>& read) {
    std::vector<NodeId> layer;
    for (const ValueRef value : read)
      if (!holds(region, value.node) && is_repeatable(value.node, region) &&
          std::find(layer.begin(), layer.end(), value.node) == layer.end())
        layer.push_back(value.node);
    return layer;
  }

  /// Neither written nor read, and one launch less: more is not saved by one value.
  bool may_pay(ValueRef value) const {
    const CostModel& costs = cost_model(plan_.options.domain);
    return 2 * bytes_of(value) / costs.bytes_per_us + costs.kernel_us > kWorthwhileLaunches * costs.kernel_us;
  }

  /// `inputs` are equal.
  void repeat_behind(int region, const std::vector<ValueRef>& inputs) {
    if (at(region).own.empty() || !may_pay(inputs[0])) return;
    std::vector<NodeId> layer = layer_behind(region, inputs);
    std::vector<NodeId> repeated, best;
    std::set<int> touched{region};
    double gain = kWorthwhileLaunches * cost_model(plan_.options.domain).kernel_us;
    for (int depth = 0; depth < kMostLayers && !layer.empty(); ++depth) {
      std::vector<ValueRef> read;
      for (const NodeId id : layer) {
        touched.insert(owner_of(id));
        for (const ValueRef source : sources_of(id)) {
          if (owner_of(source.node) >= 0) touched.insert(owner_of(source.node));
          if (!is_written(source)) read.push_back(source);
        }
      }
      repeated.insert(repeated.end(), layer.begin(), layer.end());
      if (const double now = gain_of(region, repeated, touched);
          now > gain && finds_inputs(region, repeated)) {
        gain = now;
        best = repeated;
      }
      std::vector<NodeId> next = layer_behind(region, read);
      std::erase_if(
          next, [&](NodeId id) { return std::find(repeated.begin(), repeated.end(), id) != repeated.end(); });
      layer = std::move(next);
    }
    if (!best.empty()) repeat(region, best, touched);
  }

  /// Whether what these nodes read is in memory, or computed by the region: a value that others repeat may
  /// have been dropped by the region that was to write it.
  bool finds_inputs(int region, const std::vector<NodeId>& nodes) {
    const auto is_there = [&](ValueRef source) {
      const int owner = owner_of(source.node);
      return owner < 0 || holds(owner, source.node) || holds(region, source.node) ||
             std::find(nodes.begin(), nodes.end(), source.node) != nodes.end();
    };
    return std::all_of(nodes.begin(), nodes.end(), [&](NodeId id) {
      const std::vector<ValueRef> sources = sources_of(id);
      return std::all_of(sources.begin(), sources.end(), is_there);
    });
  }

  /// What repeating them would save; nothing where it cannot be.
  double gain_of(int region, const std::vector<NodeId>& nodes, const std::set<int>& touched) {
    const auto before = cost_us(touched);
    std::map<int, std::pair<RegionNodes, std::optional<double>>> kept;
    for (const int r : touched) kept[r] = {at(r), cost_us(r)};
    repeat(region, nodes, touched);
    const auto after = cost_us(touched);
    for (auto& [r, was] : kept) {
      restore(r, std::move(was.first));
      costs_[r] = was.second;
    }
    return before && after ? *before - *after : 0;
  }

  void repeat(int region, const std::vector<NodeId>& nodes, const std::set<int>& touched) {
    for (const NodeId id : nodes) {
      held_by_[id].insert(region);
      if (owner_of(id) != region) at(region).repeated.push_back(id);
    }
    for (const int r : touched) {
      drop_unneeded(r);
      costs_.erase(r);
    }
  }

  void restore(int region, RegionNodes nodes) {
    for (const std::vector<NodeId>& list : {at(region).own, at(region).repeated})
      for (const NodeId id : list) held_by_[id].erase(region);
    at(region) = std::move(nodes);
    for (const std::vector<NodeId>& list : {at(region).own, at(region).repeated})
      for (const NodeId id : list) held_by_[id].insert(region);
  }

  /// Nodes that the region does not read, and nobody outside reads from it; what only they read goes next.
  void drop_unneeded(int region) {
    for (bool dropped = true; dropped;) {
      dropped = false;
      std::set<NodeId> read;
      for (const std::vector<NodeId>& list : {at(region).own, at(region).repeated})
        for (const NodeId id : list)
          for (const ValueRef source : sources_of(id)) read.insert(source.node);
      const auto drop = [&](NodeId id, bool needed) {
        if (needed) return false;
        held_by_[id].erase(region);
        return dropped = true;
      };
      std::erase_if(at(region).own,
                    [&](NodeId id) { return drop(id, read.contains(id) || is_written_at_all(id)); });
      std::erase_if(at(region).repeated, [&](NodeId id) { return drop(id, read.contains(id)); });
    }
  }

  bool is_written_at_all(NodeId id) const {
    for (int o = 0; o < static_cast<int>(graph_.node(id).outputs.size()); ++o)
      if (is_written({id, o})) return true;
    return false;
  }

  const Plan& plan_;
  const Graph& graph_;
  const Users& users_;
  NodeStepsCache& steps_;
  const NodeOrder order_;
  std::vector<RegionNodes> regions_;
  std::map<NodeId, int> owner_;
  std::map<NodeId, std::set<int>> held_by_;
  std::map<int, std::optional<double>> costs_;  // by region, as far as they are known
};

}  // namespace

std::vector<FusedRegion> cut_regions(const Plan& plan, const Users& users, NodeStepsCache& steps,
                                     const NodeOrder& order, std::vector<std::vector<NodeId>> regions) {
  return RegionCutter(plan, users, steps, order, std::move(regions)).cut();
}

}  // namespace braid
