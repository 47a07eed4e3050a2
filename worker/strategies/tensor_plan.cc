#include "worker/strategies/tensor_plan.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "engine/ir/op.h"
#include "proto/job.pb.h"

namespace braid::worker {
namespace {

using Axes = std::map<std::string, int>;  // of variables in slices

/// A node of the forward pass that multiplies by weights, or looks up rows of a table.
struct Layer {
  NodeId node = kNoNode;
  std::string variable;
  std::optional<int> column, row;  // axes of the variable
};

class Planner {
 public:
  Planner(const TrainingGraph& training, const proto::Tensor& how, TensorPlan& plan, int parts)
      : training_(training), how_(how), plan_(plan), parts_(parts) {}

  void run() {
    take_variables();
    plan_.graph = std::make_unique<TensorGraph>(
        training_, plan_.nodes, parts_,
        [this](const std::string& variable, int axis) { return may_slice(variable, axis); });
    find_layers();
    take_patterns();
    settle(axes_, plan_.flow);
    if (how_.automatic()) find_pairs();
    if (how_.sequence()) plan_.flow = graph().flow(axes_, true);
    for (const VariableGradient& gradient : training_.gradients)
      if (const auto at = axes_.find(gradient.variable.name); at != axes_.end())
        plan_.slices.push_back({gradient.variable, at->second, parts_, is_row(at->first, at->second)});
  }

 private:
  const TensorGraph& graph() const { return *plan_.graph; }
  const Graph& inferred() const { return plan_.nodes.inferred; }

  /// Those whose gradients there are, and that are read in no way but by their value.
  void take_variables() {
    for (const VariableGradient& gradient : training_.gradients)
      if (gradient.variable.dtype == DType::Float32)
        variables_.emplace(gradient.variable.name, gradient.variable);
    for (const NodeId id : plan_.nodes.order) {
      const Node& node = inferred().node(id);
      if (node.op->role == OpRole::Read || node.op->role == OpRole::Identity ||
          node.op->name == "ResourceGather")
        continue;
      for (const ValueRef input : node.inputs)
        if (inferred().info(input).dtype == DType::Resource)
          variables_.erase(variable_of(inferred(), input).name);
    }
  }

  bool may_slice(const std::string& variable, int axis) const {
    const auto at = variables_.find(variable);
    return at != variables_.end() && !whole_.contains(variable) && at->second.shape.rank() > axis &&
           at->second.shape[axis] % parts_ == 0;
  }

  void find_layers() {
    for (const NodeId id : plan_.nodes.order) {
      if (plan_.nodes.is(plan_.nodes.backward, id)) continue;
      const Node& node = inferred().node(id);
      const AxisLabels* labels = graph().labels(id);
      if (!labels) continue;
      if (node.op->gathers.table >= 0) {
        const auto table = static_cast<std::size_t>(node.op->gathers.table);
        add_layer(node, *labels, table, std::nullopt);
        continue;
      }
      if (node.inputs.size() != 2 || !labels->adds_up) continue;
      for (std::size_t i = 0; i < 2; ++i)
        if (const auto row = summed_axis(*labels, static_cast<int>(i))) add_layer(node, *labels, i, row);
    }
  }

  /// Columns: an axis of the output's that the other input lacks.
  void add_layer(const Node& node, const AxisLabels& labels, std::size_t input, std::optional<int> row) {
    const std::string& variable = graph().variable_of_value(node.inputs[input]);
    const auto at = variables_.find(variable);
    if (at == variables_.end() || at->second.shape.rank() < 2) return;
    Layer layer{node.id, variable, {}, row};
    const auto has = [](const AxisLabels::Labels& own, int label) {
      return std::find(own.begin(), own.end(), label) != own.end();
    };
    const AxisLabels::Labels& own = labels.inputs[input];
    for (std::size_t axis = 0; axis < own.size() && !layer.column; ++axis)
      if (own[axis] != AxisLabels::kNone && has(labels.outputs[0], own[axis]) &&
          !has(labels.inputs[1 - input], own[axis]))
        layer.column = static_cast<int>(axis);
    layers_.push_back(std::move(layer));
  }

  bool is_row(const std::string& variable, int axis) const {
    const auto any = [&](std::optional<int> Layer::*of) {
      return std::any_of(layers_.begin(), layers_.end(),
                         [&](const Layer& layer) { return layer.variable == variable && layer.*of == axis; });
    };
    return any(&Layer::row) && !any(&Layer::column);
  }

  void take_patterns() {
    std::vector<char> fits(static_cast<std::size_t>(how_.layer_size()), 0);
    std::set<std::string> seen;
    std::vector<std::unique_ptr<RE2>> patterns;
    for (int l = 0; l < how_.layer_size(); ++l) {
      patterns.push_back(std::make_unique<RE2>(how_.layer(l).match(), RE2::Quiet));
      if (!patterns.back()->ok())
        throw InvalidArgument(fmt::format("strategy.tensor.layer[{}].match '{}': {}", l,
                                          how_.layer(l).match(), patterns.back()->error()));
    }
    for (const Layer& layer : layers_) {
      const auto first = std::find_if(patterns.begin(), patterns.end(), [&](const auto& pattern) {
        return RE2::FullMatch(layer.variable, *pattern);
      });
      if (first == patterns.end()) continue;
      const auto l = static_cast<int>(first - patterns.begin());
      fits[static_cast<std::size_t>(l)] = 1;
      if (seen.insert(layer.variable).second) take(layer, how_.layer(l).split(), l);
    }
    for (std::size_t l = 0; l < fits.size(); ++l)
      if (!fits[l]) refuse(how_.layer(static_cast<int>(l)).match(), static_cast<int>(l), *patterns[l]);
  }

  [[noreturn]] void refuse(const std::string& match, int l, const RE2& pattern) const {
    const std::string place = fmt::format("strategy.tensor.layer[{}].match '{}'", l, match);
    for (const VariableInfo& variable : list_variables(inferred()))
      if (!variables_.contains(variable.name) && RE2::FullMatch(variable.name, pattern))
        throw InvalidArgument(
            fmt::format("{}: variable '{}' stays whole: it is frozen, or read by more than its value", place,
                        variable.name));
    throw InvalidArgument(place + " fits no weights that a layer multiplies by or looks up");
  }

  void take(const Layer& layer, proto::Tensor::Split split, int l) {
    if (split == proto::Tensor::WHOLE) {
      whole_.insert(layer.variable);
      return;
    }
    const bool by_rows = split == proto::Tensor::ROW;
    const std::optional<int> axis = by_rows ? layer.row : layer.column;
    const std::string what = fmt::format("strategy.tensor.layer[{}]: variable '{}' {}", l, layer.variable,
                                         variables_.at(layer.variable).shape.to_string());
    if (!axis)
      throw InvalidArgument(what + " has no " + (by_rows ? "inputs that are summed" : "columns") +
                            " to be cut: use " + (by_rows ? "COLUMN" : "WHOLE"));
    if (!may_slice(layer.variable, *axis))
      throw InvalidArgument(fmt::format("{}: axis {} is not cut into {} equal slices", what, *axis, parts_));
    axes_[layer.variable] = *axis;
  }

  /// With the variables that go along.
  void settle(Axes& axes, LayoutFlow& flow) const {
    for (flow = graph().flow(axes); !flow.wishes.empty(); flow = graph().flow(axes))
      axes.insert(flow.wishes.begin(), flow.wishes.end());
  }

  /// Layers whose outputs come to a value from no farther away than the next weights.
  void layers_above(ValueRef value, std::set<std::size_t>& found) const {
    std::vector<NodeId> open{value.node};
    std::set<NodeId> seen;
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      if (!seen.insert(id).second || plan_.nodes.is(plan_.nodes.free, id)) continue;
      bool is_layer = false;
      for (std::size_t l = 0; l < layers_.size(); ++l)
        if (layers_[l].node == id && layers_[l].row) {
          found.insert(l);
          is_layer = true;
        }
      if (is_layer) continue;
      for (const ValueRef input : inferred().node(id).inputs) open.push_back(input.node);
    }
  }

  /// This layer by columns, and all that must be cut with it.
  void try_pair(const Layer& first) {
    Axes axes = axes_;
    axes.emplace(first.variable, *first.column);
    LayoutFlow flow;
    settle(axes, flow);
    for (std::size_t before = 0; !flow.sliced.empty() && before != axes.size();) {
      before = axes.size();
      std::set<std::size_t> above;
      for (const ValueRef value : flow.sliced) layers_above(value, above);
      for (const std::size_t l : above)
        if (const Layer& layer = layers_[l]; layer.column && may_slice(layer.variable, *layer.column))
          axes.emplace(layer.variable, *layer.column);
      settle(axes, flow);
    }
    const auto moved = [](const LayoutFlow& of) {
      return of.count(Layout::Slice, false) + of.count(Layout::Slice, true);
    };
    if (moved(flow) > moved(plan_.flow) ||
        flow.count(Layout::Term, false) <= plan_.flow.count(Layout::Term, false))
      return;
    axes_ = std::move(axes);
    plan_.flow = std::move(flow);
  }

  void find_pairs() {
    for (const Layer& layer : layers_)
      if (layer.row && layer.column && !axes_.contains(layer.variable) &&
          may_slice(layer.variable, *layer.column) &&
          variables_.at(layer.variable).shape[*layer.column] >= how_.min_width())
        try_pair(layer);
  }

  const TrainingGraph& training_;
  const proto::Tensor& how_;
  TensorPlan& plan_;
  const int parts_;
  std::map<std::string, VariableInfo> variables_;  // that can be cut
  std::set<std::string> whole_;                    // of these, that are not to be
  std::vector<Layer> layers_;                      // inputs first
  Axes axes_;
};

}  // namespace

Shape TensorSlice::local_shape() const {
  if (flat) return Shape{(whole.shape.elements() + parts - 1) / parts};
  Shape shape = whole.shape;
  shape.set_dim(axis, shape[axis] / parts);
  return shape;
}

const TensorSlice* TensorPlan::find(const std::string& variable) const {
  const auto at = std::find_if(slices.begin(), slices.end(),
                               [&](const TensorSlice& slice) { return slice.whole.name == variable; });
  return at == slices.end() ? nullptr : &*at;
}

std::unique_ptr<TensorPlan> plan_tensor(const TrainingGraph& training, const proto::Tensor& how, int parts) {
  auto plan = std::make_unique<TensorPlan>();
  plan->nodes = pipeline_nodes(training, fed_columns(training));
  Planner(training, how, *plan, parts).run();
  return plan;
}

}  // namespace braid::worker
