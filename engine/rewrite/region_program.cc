#include "engine/rewrite/region_program.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/ir/op.h"
#include "engine/ops/common/halves.h"
#include "engine/rewrite/region_lifts.h"
#include "engine/rewrite/region_parts.h"
#include "engine/rewrite/region_turns.h"
#include "engine/rewrite/rewrite.h"

namespace braid {
namespace {

using fusion::Axes;
using fusion::Extent;
using fusion::NodeSteps;
using fusion::Region;

/// Whether a region may have what all of them do: scans are of one length and one direction, without sums of
/// rows and columns beside them.
bool fit_each_other(const std::vector<const NodeSteps*>& nodes) {
  const Region::Step* scan = nullptr;
  bool adds_up = false;
  for (const NodeSteps* steps : nodes)
    for (const Region::Step& step : steps->steps) {
      adds_up |= step.kind == Region::Kind::Reduce || step.kind == Region::Kind::Columns;
      if (step.kind != Region::Kind::Scan) continue;
      if (scan &&
          (scan->length != step.length || (!scan->last && !step.last && scan->reverse != step.reverse)))
        return false;
      if (!scan || scan->last) scan = &step;
    }
  return !scan || !adds_up;
}

/// The extent of a node whose places are the grid's, or its rows.
Extent level_of(const Region& region, std::int64_t elements) {
  return elements == region.rows * region.columns ? Extent::Full : Extent::Row;
}

/// Rows and columns that all nodes fit, or nothing.
bool find_grid(const std::vector<const NodeSteps*>& nodes, const RegionLimits& limits, Region& region) {
  std::int64_t most = 0, least = INT64_MAX, rows = 0;
  for (const NodeSteps* steps : nodes) {
    most = std::max(most, steps->elements);
    least = std::min(least, steps->elements);
  }
  for (const NodeSteps* steps : nodes) {
    if (steps->columns == 0) continue;
    if (steps->columns > limits.longest_row || steps->elements % steps->columns != 0) return false;
    if (rows != 0 && rows != steps->elements / steps->columns) return false;
    rows = steps->elements / steps->columns;
    if (steps->elements != most) return false;
  }
  if (rows == 0) rows = least == most ? 1 : least;
  if (most % rows != 0) return false;
  region.rows = rows;
  region.columns = most / rows;
  const bool is_flat = least == most && rows == 1;
  for (const NodeSteps* steps : nodes)
    if (steps->elements != most && (is_flat || steps->elements != rows || steps->columns != 0)) return false;
  return true;
}

/// The axes without the last `columns` elements, where these are one value repeated.
bool strip_columns(Axes axes, std::int64_t columns, Axes& rows) {
  if (columns == 1) return false;
  if (axes.empty() || axes.back().stride != 0 || axes.back().size % columns != 0) return false;
  axes.back().size /= columns;
  rows = fusion::joined(axes);
  return true;
}

class Maker {
 public:
  Maker(const Plan& plan, NodeStepsCache& cache, const RegionLimits& limits)
      : plan_(plan), graph_(plan.program.graph), cache_(cache), limits_(limits) {}

  /// `lifts`: small nodes are computed at each place.
  std::optional<FusedRegion> make(const std::vector<NodeId>& nodes,
                                  const std::function<bool(ValueRef)>& is_output, bool lifts) {
    std::vector<const NodeSteps*> steps;
    for (const NodeId id : nodes) steps.push_back(cache_.of(id));
    if (!fit_each_other(steps)) return std::nullopt;
    if (lifts ? !find_grid_of_most(nodes, steps) : !find_grid(steps, limits_, made_.program))
      return std::nullopt;
    made_.nodes = nodes;
    // Inputs are numbered before steps: they are found first, and steps follow.
    for (std::size_t n = 0; n < nodes.size(); ++n)
      if (!add_inputs(nodes[n], *steps[n], nodes)) return std::nullopt;
    for (std::size_t n = 0; n < nodes.size(); ++n) add_steps(nodes[n], *steps[n]);
    for (const NodeId id : nodes)
      for (int o = 0; o < static_cast<int>(graph_.node(id).outputs.size()); ++o)
        if (is_output({id, o}) && !add_output({id, o})) return std::nullopt;
    if (static_cast<int>(made_.inputs.size()) > limits_.inputs ||
        static_cast<int>(made_.outputs.size()) > limits_.outputs || made_.outputs.empty())
      return std::nullopt;
    return std::move(made_);
  }

 private:
  /// How an input of a node is met: a value of another node of the region, or an input of the program.
  struct Operand {
    ValueRef inner;
    int input = -1;
  };

  /// A grid that all but small nodes fit, which are computed at each of its places.
  bool find_grid_of_most(const std::vector<NodeId>& nodes, const std::vector<const NodeSteps*>& steps) {
    std::int64_t places = 0;
    for (const NodeSteps* each : steps) places = std::max(places, each->elements);
    std::set<NodeId> small;
    std::vector<const NodeSteps*> others;
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      if (may_be_lifted(*steps[n], places))
        small.insert(nodes[n]);
      else
        others.push_back(steps[n]);
    }
    if (small.empty() || !find_grid(others, limits_, made_.program)) return false;
    auto lifts = find_lifts(plan_, cache_, nodes, small, places);
    if (lifts) lifts_ = std::move(*lifts);
    return lifts.has_value();
  }

  Extent level_of(NodeId id, const NodeSteps& steps) const {
    return lifts_.contains(id) ? Extent::Full : braid::level_of(made_.program, steps.elements);
  }

  bool add_inputs(NodeId id, const NodeSteps& steps, const std::vector<NodeId>& nodes) {
    const Extent level = level_of(id, steps);
    const auto lift = lifts_.find(id);
    for (NodeSteps::Input input : steps.inputs) {
      if (lift != lifts_.end()) {
        const auto axes = composed(lift->second, input.axes);
        if (!axes) return false;
        input.axes = *axes;
      }
      const ValueRef source =
          cache_.source(plan_, graph_.node(id).inputs[static_cast<std::size_t>(input.input)]);
      Operand operand;
      if (std::find(nodes.begin(), nodes.end(), source.node) != nodes.end()) {
        if (!passes(source, input.axes, level)) return false;
        operand.inner = source;
      } else {
        operand.input = input_of(source, input, level, nodes);
      }
      operands_[id].push_back(operand);
    }
    return true;
  }

  /// Whether the value meets the places of a node of that level one by one, or row by row.
  bool passes(ValueRef value, const Axes& axes, Extent level) const {
    if (const auto lift = lifts_.find(value.node); lift != lifts_.end()) return lift->second == axes;
    const NodeSteps& from = *cache_.of(value.node);
    const int step = from.outputs[static_cast<std::size_t>(value.output)];
    if (step < 0) return false;
    const Extent made = braid::level_of(made_.program, from.elements) == Extent::Row
                            ? Extent::Row
                            : from.steps[static_cast<std::size_t>(step)].extent;
    if (made >= Extent::Column) return false;  // outputs only
    const std::int64_t elements = made_.program.elements(made);
    if (made == level || (made_.program.columns == 1 && made != Extent::One))
      return axes == fusion::contiguous_axes(elements);
    Axes rows;
    return made == Extent::Row && level == Extent::Full && strip_columns(axes, made_.program.columns, rows) &&
           rows == fusion::contiguous_axes(elements);
  }

  int input_of(ValueRef source, const NodeSteps::Input& input, Extent level,
               const std::vector<NodeId>& nodes) {
    Region::Input made{input.dtype, level, input.axes};
    made_.reads_parts |= look_through(plan_, cache_, nodes, source, made);
    if (Axes rows; level == Extent::Full && strip_columns(made.axes, made_.program.columns, rows))
      made = {input.dtype, Extent::Row, rows, made.offset};
    if (std::all_of(made.axes.begin(), made.axes.end(), [](const fusion::Axis& a) { return a.stride == 0; }))
      made = {input.dtype, Extent::One, {}, made.offset};
    auto& inputs = made_.program.inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (made_.inputs[i] == source && inputs[i].extent == made.extent && inputs[i].axes == made.axes &&
          inputs[i].offset == made.offset)
        return static_cast<int>(i);
    inputs.push_back(std::move(made));
    made_.inputs.push_back(source);
    return static_cast<int>(inputs.size()) - 1;
  }

  void add_steps(NodeId id, const NodeSteps& steps) {
    const Extent level = level_of(id, steps);
    std::vector<int> numbers;  // by step of the node
    for (const Region::Step& step : steps.steps) {
      Region::Step own = step;
      if (own.extent == Extent::Full) own.extent = level;
      for (int& operand : own.operands)
        operand = operand < 0 ? number_of(operands_[id][static_cast<std::size_t>(~operand)])
                              : numbers[static_cast<std::size_t>(operand)];
      numbers.push_back(add(unrounded(std::move(own))));
    }
    for (std::size_t o = 0; o < steps.outputs.size(); ++o)
      if (steps.outputs[o] >= 0)
        values_[{id, static_cast<int>(o)}] = numbers[static_cast<std::size_t>(steps.outputs[o])];
  }

  /// Under mixed precision, what a half stands for within the region is the number that it was rounded from:
  /// halves are how values are stored, not what is computed with.
  Region::Step unrounded(Region::Step step) const {
    const Region& program = made_.program;
    if (step.kind != Region::Kind::Cast || program.is_input(step.operands[0])) return step;
    const Region::Step& narrow = program.step(step.operands[0]);
    if (narrow.kind != Region::Kind::Cast || !is_half(narrow.dtype) ||
        narrow.dtype != plan_.options.precision.half || program.dtype_of(narrow.operands[0]) != step.dtype)
      return step;
    step.operands = {narrow.operands[0]};
    return step;
  }

  /// What is there already is used again: constants, and what several nodes widen or repeat.
  int add(Region::Step step) {
    Region& program = made_.program;
    const auto same = std::find(program.steps.begin(), program.steps.end(), step);
    if (same != program.steps.end())
      return static_cast<int>(program.inputs.size()) + static_cast<int>(same - program.steps.begin());
    program.steps.push_back(std::move(step));
    return program.values() - 1;
  }

  int number_of(const Operand& operand) const {
    return operand.input >= 0 ? operand.input : values_.at(operand.inner);
  }

  /// A small node's elements are nowhere.
  bool add_output(ValueRef value) {
    if (lifts_.contains(value.node)) return false;
    auto& outputs = made_.program.outputs;
    const Shape& shape = graph_.info(value).shape;
    int number = values_.at(value);
    const auto same = std::find_if(outputs.begin(), outputs.end(),
                                   [&](const Region::Output& o) { return o.value == number; });
    if (same != outputs.end() && same->shape == shape) {
      made_.outputs[static_cast<std::size_t>(same - outputs.begin())].push_back(value);
      return true;
    }
    if (same != outputs.end()) {  // the same elements in another shape
      made_.program.steps.push_back({.kind = Region::Kind::Cast,
                                     .dtype = made_.program.dtype_of(number),
                                     .extent = made_.program.extent_of(number),
                                     .operands = {number}});
      number = made_.program.values() - 1;
    }
    outputs.push_back({number, shape});
    made_.outputs.push_back({value});
    return true;
  }

  const Plan& plan_;
  const Graph& graph_;
  NodeStepsCache& cache_;
  const RegionLimits& limits_;
  FusedRegion made_;
  std::map<NodeId, std::vector<Operand>> operands_;
  std::map<ValueRef, int> values_;
  Lifts lifts_;
};

}  // namespace

const fusion::NodeSteps* NodeStepsCache::of(NodeId id) {
  const auto [at, is_new] = steps_.try_emplace(id);
  if (is_new) {
    const Node& node = graph_.node(id);
    std::vector<OutputInfo> inputs;
    std::vector<const Tensor*> values;
    for (const ValueRef input : node.inputs) {
      inputs.push_back(graph_.info(input));
      values.push_back(graph_.known_value(input));
    }
    at->second = fusion::steps_of(node, inputs, values);
  }
  return at->second ? &*at->second : nullptr;
}

ValueRef NodeStepsCache::source(const Plan& plan, ValueRef value) const {
  for (;;) {
    const Node& node = graph_.node(value.node);
    const auto& views = node.op->views;
    const auto view =
        std::find_if(views.begin(), views.end(), [&](const auto& v) { return v.first == value.output; });
    if (view == views.end() || views.size() != node.outputs.size() || node.op->role == OpRole::Read ||
        node.op->side_effect || !is_plain(plan, node))
      return value;
    const ValueRef from = node.inputs[static_cast<std::size_t>(view->second)];
    const OutputInfo &seen = graph_.info(value), &whole = graph_.info(from);
    if (seen.dtype != whole.dtype || !seen.shape.is_static() || !whole.shape.is_static() ||
        seen.shape.elements() != whole.shape.elements() || plan.feed_of(value) >= 0)
      return value;
    value = from;
  }
}

namespace {

/// Where the elements of a part, or of a transposition, are, and how an input meets them there.
struct PlaceBefore {
  ValueRef whole;
  std::optional<Through> places;
};

PlaceBefore place_of(const Plan& plan, const NodeStepsCache& steps, ValueRef source, const Through& places) {
  if (steps.is_read_through(source.node)) {
    const auto turn = turn_of(plan, source.node);
    return turn ? PlaceBefore{turn->whole, axes_through(*turn, places)} : PlaceBefore{};
  }
  const auto part = part_of(plan, source);
  return part ? PlaceBefore{part->whole, axes_through(*part, places)} : PlaceBefore{};
}

}  // namespace

bool look_through(const Plan& plan, const NodeStepsCache& steps, const std::vector<NodeId>& nodes,
                  ValueRef& source, Region::Input& input) {
  const Graph& graph = plan.program.graph;
  for (bool looked = false;; looked = true) {
    const PlaceBefore place = place_of(plan, steps, source, {input.axes, input.offset});
    if (!place.places || !together(graph.node(source.node), graph.node(nodes[0]))) return looked;
    const ValueRef whole = steps.source(plan, place.whole);
    if (std::find(nodes.begin(), nodes.end(), whole.node) != nodes.end()) return looked;
    source = whole;
    input.axes = place.places->axes;
    input.offset = place.places->offset;
  }
}

void make_room(Region& program, int at) {
  const auto shift = [at](int& value) { value += value >= at ? 1 : 0; };
  for (Region::Input& input : program.inputs) shift(input.by);
  for (Region::Step& step : program.steps)
    for (int& operand : step.operands) shift(operand);
  for (Region::Output& output : program.outputs) shift(output.value);
}

int add_input(FusedRegion& region, ValueRef value, Region::Input made) {
  Region& program = region.program;
  for (std::size_t i = 0; i < program.inputs.size(); ++i) {
    const Region::Input& input = program.inputs[i];
    if (region.inputs[i] == value && input.extent == made.extent && input.axes == made.axes &&
        input.offset == made.offset && input.by < 0)
      return static_cast<int>(i);
  }
  const auto at = static_cast<int>(program.inputs.size());
  make_room(program, at);
  program.inputs.push_back(std::move(made));
  region.inputs.push_back(value);
  return at;
}

bool is_needed(const Plan& plan, const Users& users, const NodeStepsCache& steps, ValueRef value,
               const std::function<bool(NodeId)>& has_it) {
  if (std::find(plan.fetches.begin(), plan.fetches.end(), value) != plan.fetches.end()) return true;
  for (const NodeId user : users.of(value.node)) {
    const Node& node = plan.program.graph.node(user);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != value || has_it(user) || uses_shape_only(node, i)) continue;
      // A view whose users all look through it needs nothing itself.
      const ValueRef seen{user, 0};
      const bool is_target = users.is_awaited(user) ||
                             std::find(plan.targets.begin(), plan.targets.end(), user) != plan.targets.end();
      const bool looked_through = !is_target && node.outputs.size() == 1 && steps.source(plan, seen) != seen;
      if (!looked_through || is_needed(plan, users, steps, seen, has_it)) return true;
    }
  }
  return false;
}

std::optional<FusedRegion> make_region(const Plan& plan, NodeStepsCache& steps,
                                       const std::vector<NodeId>& nodes,
                                       const std::function<bool(ValueRef)>& is_output,
                                       const RegionLimits& limits) {
  if (static_cast<int>(nodes.size()) > limits.nodes) return std::nullopt;
  if (auto made = Maker(plan, steps, limits).make(nodes, is_output, false)) return made;
  return Maker(plan, steps, limits).make(nodes, is_output, true);
}

}  // namespace braid
