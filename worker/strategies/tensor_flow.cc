#include "worker/strategies/tensor_flow.h"

#include <algorithm>
#include <set>

#include "engine/ir/infer.h"
#include "engine/ir/op.h"

namespace braid::worker {

std::int64_t LayoutFlow::count(Layout::Kind from, bool backward) const {
  return std::count_if(exchanges.begin(), exchanges.end(), [&](const GroupExchange& exchange) {
    return exchange.from.kind == from && exchange.backward == backward;
  });
}

/// The state of one flow().
struct TensorGraph::Walk {
  LayoutFlow found;
  std::set<std::pair<ValueRef, Layout>> exchanged;

  Layout made(ValueRef value) const {
    return found.made[static_cast<std::size_t>(value.node)][static_cast<std::size_t>(value.output)];
  }
};

TensorGraph::TensorGraph(const TrainingGraph& training, const PipelineNodes& nodes, int parts,
                         std::function<bool(const std::string&, int)> may_slice)
    : training_(training), nodes_(nodes), parts_(parts), may_slice_(std::move(may_slice)) {
  labels_.resize(static_cast<std::size_t>(nodes.inferred.size()));
  for (const NodeId id : nodes.order)
    labels_[static_cast<std::size_t>(id)] = axis_labels(nodes.inferred, nodes.inferred.node(id));
  count_uses();
  find_variables();
}

void TensorGraph::count_uses() {
  for (const NodeId id : nodes_.order)
    for (const ValueRef input : nodes_.inferred.node(id).inputs) ++uses_[input];
  for (const VariableGradient& gradient : training_.gradients)
    ++uses_[gradient.slices ? gradient.slices->values : gradient.dense];
}

void TensorGraph::find_variables() {
  variables_.resize(labels_.size());
  for (const NodeId id : nodes_.order) {
    const Node& node = nodes_.inferred.node(id);
    std::string& own = variables_[static_cast<std::size_t>(id)];
    if (node.op->role == OpRole::Variable)
      own = variable_of(nodes_.inferred, {id, 0}).name;
    else if (node.op->role == OpRole::Read || node.op->role == OpRole::Identity || node.op->name == "Cast")
      own = variables_[static_cast<std::size_t>(node.inputs[0].node)];
  }
}

const AxisLabels* TensorGraph::labels(NodeId id) const {
  const auto& found = labels_[static_cast<std::size_t>(id)];
  return found ? &*found : nullptr;
}

const std::string& TensorGraph::variable_of_value(ValueRef value) const {
  return variables_[static_cast<std::size_t>(value.node)];
}

bool TensorGraph::can_cut(const Node& node, const AxisLabels& labels, int label) const {
  if (label == AxisLabels::kNone) return false;
  const Graph& graph = nodes_.inferred;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const AxisLabels::Labels& own = labels.inputs[i];
    if (std::count(own.begin(), own.end(), label) > 1) return false;
    const int axis = axis_of_label(own, label);
    if (axis < 0) continue;
    const OutputInfo& info = graph.info(node.inputs[i]);
    const Shape shape = info.dtype == DType::Resource ? variable_of(graph, node.inputs[i]).shape : info.shape;
    if (shape[axis] % parts_ != 0) return false;
  }
  for (std::size_t o = 0; o < node.outputs.size(); ++o) {
    const int axis = axis_of_label(labels.outputs[o], label);
    if (axis >= 0 && node.outputs[o].shape[axis] % parts_ != 0) return false;
    if (axis < 0 && !(labels.adds_up && node.outputs[o].dtype == DType::Float32)) return false;
  }
  return true;
}

/// That of the first input in slices that come of weights, else of rows, else of the first term.
TensorGraph::Cut TensorGraph::cut_of(const Node& node, const AxisLabels& labels,
                                     const std::vector<Layout>& have, bool rows) const {
  const auto first = [&](auto fits, auto axis_of_input) {
    for (std::size_t i = 0; i < have.size(); ++i) {
      if (!fits(have[i]) || reads_shape_only(node, i)) continue;
      const AxisLabels::Labels& own = labels.inputs[i];
      const auto axis = static_cast<std::size_t>(axis_of_input(have[i]));
      const int label = axis < own.size() ? own[axis] : AxisLabels::kNone;
      if (can_cut(node, labels, label)) return label;
    }
    return AxisLabels::kNone;
  };
  const auto axis = [](const Layout& layout) { return layout.axis; };
  Cut cut;
  for (const bool of_rows : {false, true}) {
    if (cut.label != AxisLabels::kNone) break;
    cut = {first([&](const Layout& l) { return l.kind == Layout::Slice && l.of_rows == of_rows; }, axis),
           of_rows};
  }
  const bool may_begin = rows && labels.outputs.size() == 1;
  if (cut.label != AxisLabels::kNone || !may_begin) return cut;
  cut.label = first([](const Layout& l) { return l.kind == Layout::Term; }, [](const Layout&) { return 0; });
  if (axis_of_label(labels.outputs[0], cut.label) > 0) cut.label = AxisLabels::kNone;
  return cut;
}

/// A value that others read too is better made whole once.
void TensorGraph::pass_terms(const Node& node, const AxisLabels& labels, const std::vector<Layout>& have,
                             std::vector<Layout>& needed, std::vector<Layout>& made) const {
  if (!labels.linear || node.outputs.size() != 1 || node.outputs[0].dtype != DType::Float32) return;
  const auto alone = [&](std::size_t i) {
    return have[i].kind == Layout::Term && uses_.at(node.inputs[i]) == 1;
  };
  if (labels.one_value) {
    if (!alone(0)) return;
    needed[0] = made[0] = Layout::term();
    return;
  }
  std::size_t terms = 0;
  for (std::size_t i = 0; i < have.size(); ++i) {
    if (have[i].kind == Layout::Slice) return;
    terms += alone(i) ? 1 : 0;
  }
  if (terms < std::min<std::size_t>(2, have.size())) return;
  std::fill(needed.begin(), needed.end(), Layout::term());
  made[0] = Layout::term();
}

void TensorGraph::note_wishes(const Node& node, const std::map<std::string, int>& slices, Walk& walk) const {
  const std::vector<Layout>& needed = walk.found.needed[static_cast<std::size_t>(node.id)];
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const ValueRef value = node.inputs[i];
    if (needed[i].kind != Layout::Slice || walk.made(value).kind != Layout::Whole ||
        reads_shape_only(node, i))
      continue;
    const std::string& variable = variable_of_value(value);
    if (variable.empty()) {
      if (!nodes_.is(nodes_.free, value.node)) walk.found.sliced.push_back(value);
    } else if (!slices.contains(variable) && may_slice_(variable, needed[i].axis)) {
      walk.found.wishes.emplace(variable, needed[i].axis);
    }
  }
}

/// One node, behind those that it reads.
void TensorGraph::follow(const Node& node, const std::map<std::string, int>& slices, bool rows,
                         Walk& walk) const {
  std::vector<Layout> have, needed(node.inputs.size()), made(node.outputs.size());
  for (const ValueRef input : node.inputs) have.push_back(walk.made(input));
  const AxisLabels* labels = this->labels(node.id);
  if (node.op->role == OpRole::Variable) {
    const auto at = slices.find(variable_of_value({node.id, 0}));
    if (at != slices.end()) made[0] = Layout::slice(at->second);
  } else if (labels) {
    pass_terms(node, *labels, have, needed, made);
    const bool passes = !made.empty() && made[0].kind == Layout::Term;
    const Cut cut = passes ? Cut{} : cut_of(node, *labels, have, rows);
    if (cut.label != AxisLabels::kNone) {
      const auto lies = [&](const AxisLabels::Labels& own, Layout other) {
        const int axis = axis_of_label(own, cut.label);
        return axis < 0 ? other : Layout::slice(axis, cut.of_rows);
      };
      for (std::size_t i = 0; i < needed.size(); ++i) needed[i] = lies(labels->inputs[i], {});
      for (std::size_t o = 0; o < made.size(); ++o) made[o] = lies(labels->outputs[o], Layout::term());
    }
  }
  const auto at = static_cast<std::size_t>(node.id);
  walk.found.needed[at] = needed;
  walk.found.made[at] = made;
}

LayoutFlow TensorGraph::flow(const std::map<std::string, int>& slices, bool rows) const {
  Walk walk;
  const Graph& graph = nodes_.inferred;
  walk.found.made.resize(static_cast<std::size_t>(graph.size()));
  walk.found.needed.resize(static_cast<std::size_t>(graph.size()));
  const auto exchange = [&](ValueRef value, Layout to) {
    const Layout from = walk.made(value);
    if (from == to || from.kind == Layout::Whole) return;
    // Slices of another axis, and terms of slices, are made of the whole.
    if (from.kind == Layout::Slice) to = {};
    if (!walk.exchanged.insert({value, to}).second) return;
    walk.found.exchanges.push_back(
        {value, from, to, value_bytes(graph.info(value)), nodes_.is(nodes_.backward, value.node)});
  };
  for (const NodeId id : nodes_.order) {
    const Node& node = graph.node(id);
    follow(node, slices, rows, walk);
    const std::vector<Layout>& needed = walk.found.needed[static_cast<std::size_t>(id)];
    for (std::size_t i = 0; i < needed.size(); ++i)
      if (!reads_shape_only(node, i)) exchange(node.inputs[i], needed[i]);
    if (!nodes_.is(nodes_.backward, id)) note_wishes(node, slices, walk);
  }
  for (const VariableGradient& gradient : training_.gradients) {
    const auto at = slices.find(gradient.variable.name);
    const ValueRef value = gradient.slices ? gradient.slices->values : gradient.dense;
    if (at != slices.end() || gradient.slices) {
      exchange(value, at == slices.end() ? Layout{} : Layout::slice(at->second));
      continue;
    }
    const Layout from = walk.made(value);
    if (from.kind == Layout::Slice) {
      exchange(value, {});
    } else if (walk.exchanged.insert({value, {}}).second) {
      walk.found.exchanges.push_back({value,
                                      from,
                                      {},
                                      value_bytes(graph.info(value)),
                                      true,
                                      gradient.variable.shape.elements() <= kSmallGradient});
    }
  }
  for (const ValueRef value : {training_.loss, training_.weighted_loss}) exchange(value, {});
  return std::move(walk.found);
}

}  // namespace braid::worker
