#include "worker/strategies/experts_flow.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "engine/ir/infer.h"
#include "engine/ir/op.h"

namespace braid::worker {
namespace {

constexpr int kNoLabel = AxisLabels::kNone;

bool has_label(const AxisLabels::Labels& labels, int label) { return axis_of_label(labels, label) >= 0; }

}  // namespace

/// The state of one flow().
struct ExpertGraph::Walk {
  ExpertFlow found;
  std::map<ValueRef, ExpertLayout> sent;  // own values that the group has exchanged already
  std::set<std::pair<ValueRef, ExpertLayout>> exchanged;

  ExpertLayout made(ValueRef value) const {
    return found.made[static_cast<std::size_t>(value.node)][static_cast<std::size_t>(value.output)];
  }
};

/// How a node works on slices.
struct ExpertGraph::Cut {
  int experts = kNoLabel, rows = kNoLabel;  // labels
  std::vector<ExpertLayout> needed, made;
};

ExpertGraph::ExpertGraph(const TrainingGraph& training, const PipelineNodes& nodes, int parts,
                         std::function<bool(const std::string&, int)> may_slice)
    : training_(training), nodes_(nodes), parts_(parts), may_slice_(std::move(may_slice)) {
  labels_.resize(static_cast<std::size_t>(nodes.inferred.size()));
  for (const NodeId id : nodes.order)
    labels_[static_cast<std::size_t>(id)] = axis_labels(nodes.inferred, nodes.inferred.node(id));
  find_variables();
  find_what_is_the_same();
}

void ExpertGraph::find_variables() {
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

void ExpertGraph::find_what_is_the_same() {
  same_on_all_.assign(labels_.size(), 0);
  for (const NodeId id : nodes_.order) {
    const Node& node = nodes_.inferred.node(id);
    bool same = node.op->role == OpRole::Variable || node.op->role == OpRole::Read ||
                (node.op->role != OpRole::Placeholder && !node.op->stateful && !node.op->side_effect);
    for (std::size_t i = 0; i < node.inputs.size() && same; ++i)
      same = reads_shape_only(node, i) || is_same_on_all(node.inputs[i]);
    same_on_all_[static_cast<std::size_t>(id)] = same;
  }
}

bool ExpertGraph::is_same_on_all(ValueRef value) const {
  return same_on_all_[static_cast<std::size_t>(value.node)] != 0 || nodes_.inferred.known_value(value);
}

ValueRef ExpertGraph::origin(ValueRef value) const {
  for (;;) {
    const Node& node = nodes_.inferred.node(value.node);
    const bool gives_shape = node.op->role == OpRole::Identity || node.op->name == "braid.ReduceToShapeOf" ||
                             node.op->name == "braid.ReshapeLike";
    if (!gives_shape || node.outputs.size() != 1) return value;
    const Shape& shape = nodes_.inferred.info(node.inputs[0]).shape;
    if (!shape.is_static() || !(shape == node.outputs[0].shape)) return value;
    value = node.inputs[0];
  }
}

const AxisLabels* ExpertGraph::labels(NodeId id) const {
  const auto& found = labels_[static_cast<std::size_t>(id)];
  return found ? &*found : nullptr;
}

std::vector<ExpertLayer> ExpertGraph::layers() const {
  std::vector<ExpertLayer> found;
  for (const NodeId id : nodes_.order) {
    const Node& node = nodes_.inferred.node(id);
    const AxisLabels* labels = this->labels(id);
    if (nodes_.is(nodes_.backward, id) || !labels || !labels->adds_up || node.inputs.size() != 2 ||
        labels->outputs.size() != 1)
      continue;
    for (std::size_t i = 0; i < 2; ++i) {
      const std::string& variable = variable_of_value(node.inputs[i]);
      const AxisLabels::Labels &own = labels->inputs[i], &other = labels->inputs[1 - i];
      const AxisLabels::Labels& out = labels->outputs[0];
      const bool has_rows = std::any_of(other.begin(), other.end(), [&](int label) {
        return has_label(out, label) && !has_label(own, label);
      });
      if (variable.empty() || !has_rows || is_same_on_all(node.inputs[1 - i])) continue;
      const auto axis = std::find_if(own.begin(), own.end(), [&](int label) {
        return has_label(out, label) && has_label(other, label);
      });
      if (axis != own.end()) found.push_back({id, variable, static_cast<int>(axis - own.begin())});
    }
  }
  return found;
}

/// An axis of an input of the worker's own rows that the node keeps, and that no slice has.
int ExpertGraph::rows_of_input(const Node& node, const AxisLabels& labels, const Walk& walk,
                               int experts) const {
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (reads_shape_only(node, i) || walk.made(node.inputs[i]).kind != ExpertLayout::Own ||
        is_same_on_all(node.inputs[i]) || !has_label(labels.inputs[i], experts))
      continue;
    for (const int label : labels.inputs[i]) {
      bool of_slices = false;
      for (std::size_t j = 0; j < node.inputs.size(); ++j)
        of_slices = of_slices || (walk.made(node.inputs[j]).kind == ExpertLayout::Slice &&
                                  has_label(labels.inputs[j], label));
      if (label != experts && has_label(labels.outputs[0], label) && !of_slices) return label;
    }
  }
  return kNoLabel;
}

/// The labels of experts and rows. False: the node works on the worker's own rows.
bool ExpertGraph::find_labels(const Node& node, const AxisLabels& labels, const Walk& walk, Cut& cut) const {
  const auto take = [&](std::size_t i, ExpertLayout layout) {
    const AxisLabels::Labels& own = labels.inputs[i];
    const auto label = [&](int axis) {
      return axis < 0 || axis >= static_cast<int>(own.size()) ? kNoLabel
                                                              : own[static_cast<std::size_t>(axis)];
    };
    if (cut.experts == kNoLabel) cut.experts = label(layout.experts);
    if (cut.rows == kNoLabel && label(layout.experts) == cut.experts) cut.rows = label(layout.rows);
  };
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (const ExpertLayout made = walk.made(node.inputs[i]);
        made.kind != ExpertLayout::Own && !reads_shape_only(node, i))
      take(i, made);
  const bool of_slices = cut.experts != kNoLabel;
  // What has been exchanged already is there for gradients of weights too.
  const bool adds_rows = labels.adds_up && nodes_.is(nodes_.backward, node.id);
  for (std::size_t i = 0; i < node.inputs.size() && adds_rows && !of_slices; ++i)
    if (const auto sent = walk.sent.find(origin(node.inputs[i])); sent != walk.sent.end())
      take(i, sent->second);
  if (cut.experts == kNoLabel) return false;
  if (!of_slices) return cut.rows != kNoLabel && !has_label(labels.outputs[0], cut.rows);
  if (cut.rows == kNoLabel) cut.rows = rows_of_input(node, labels, walk, cut.experts);
  return true;
}

bool ExpertGraph::fits_input(const Node& node, std::size_t input, const AxisLabels& labels, const Walk& walk,
                             Cut& cut) const {
  const AxisLabels::Labels& own = labels.inputs[input];
  const int experts = axis_of_label(own, cut.experts), rows = axis_of_label(own, cut.rows);
  if (std::count(own.begin(), own.end(), cut.experts) > 1) return false;
  const OutputInfo& info = nodes_.inferred.info(node.inputs[input]);
  const Shape shape =
      info.dtype == DType::Resource ? variable_of(nodes_.inferred, node.inputs[input]).shape : info.shape;
  if (experts >= 0 && shape[experts] % parts_ != 0) return false;
  cut.needed[input] = experts < 0 ? ExpertLayout{} : ExpertLayout::slice(experts, rows);
  if (reads_shape_only(node, input)) return true;
  const ExpertLayout made = walk.made(node.inputs[input]);
  if (made.kind == ExpertLayout::Total) return false;
  const bool same = made.kind == ExpertLayout::Slice ? made.rows == ExpertLayout::kNoRows
                                                     : is_same_on_all(node.inputs[input]);
  if (experts < 0) return rows < 0 && made.kind == ExpertLayout::Own && same;
  // Values of rows need their axis; what is the same for all has none.
  return same ? rows < 0 || made.kind == ExpertLayout::Own : rows >= 0;
}

bool ExpertGraph::fits_output(const Node& node, std::size_t output, const AxisLabels& labels,
                              Cut& cut) const {
  const AxisLabels::Labels& own = labels.outputs[output];
  const int experts = axis_of_label(own, cut.experts), rows = axis_of_label(own, cut.rows);
  const OutputInfo& info = node.outputs[output];
  if (experts < 0 || std::count(own.begin(), own.end(), cut.experts) > 1 || info.shape[experts] % parts_ != 0)
    return false;
  cut.made[output] = ExpertLayout::slice(experts, rows);
  if (rows >= 0 || cut.rows == kNoLabel) return true;
  cut.made[output] = ExpertLayout::total(experts);
  return labels.adds_up && info.dtype == DType::Float32;
}

bool ExpertGraph::fits(const Node& node, const AxisLabels& labels, const Walk& walk, Cut& cut) const {
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (!fits_input(node, i, labels, walk, cut)) return false;
  for (std::size_t o = 0; o < node.outputs.size(); ++o)
    if (!fits_output(node, o, labels, cut)) return false;
  return true;
}

/// Sums of gradients, and what passes one on.
bool ExpertGraph::add_totals(const Node& node, const AxisLabels& labels, const Walk& walk, Cut& cut) const {
  if (!labels.linear || node.outputs.size() != 1) return false;
  const int axis = axis_of_label(labels.outputs[0], cut.experts);
  if (axis < 0) return false;
  const std::size_t terms = labels.one_value ? 1 : node.inputs.size();
  for (std::size_t i = 0; i < terms; ++i) {
    const int experts = axis_of_label(labels.inputs[i], cut.experts);
    if (experts < 0 || walk.made(node.inputs[i]).rows != ExpertLayout::kNoRows) return false;
    cut.needed[i] = ExpertLayout::total(experts);
  }
  for (std::size_t i = terms; i < node.inputs.size(); ++i)  // whose shape is asked for
    if (const int experts = axis_of_label(labels.inputs[i], cut.experts); experts >= 0)
      cut.needed[i] = ExpertLayout::slice(experts);
  cut.made[0] = ExpertLayout::total(axis);
  return true;
}

void ExpertGraph::note_wishes(const Node& node, const std::map<std::string, int>& slices, Walk& walk) const {
  const std::vector<ExpertLayout>& needed = walk.found.needed[static_cast<std::size_t>(node.id)];
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const std::string& variable = variable_of_value(node.inputs[i]);
    if (needed[i].kind == ExpertLayout::Slice && needed[i].rows == ExpertLayout::kNoRows &&
        walk.made(node.inputs[i]).kind == ExpertLayout::Own && !reads_shape_only(node, i) &&
        !variable.empty() && !slices.contains(variable) && may_slice_(variable, needed[i].experts))
      walk.found.wishes.emplace(variable, needed[i].experts);
  }
}

/// One node, behind those that it reads.
void ExpertGraph::follow(const Node& node, const std::map<std::string, int>& slices, Walk& walk) const {
  const Cut own{.needed = std::vector<ExpertLayout>(node.inputs.size()),
                .made = std::vector<ExpertLayout>(node.outputs.size())};
  Cut cut = own;
  const auto is_total = [&](std::size_t i) {
    return walk.made(node.inputs[i]).kind == ExpertLayout::Total && !reads_shape_only(node, i);
  };
  bool has_totals = false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) has_totals = has_totals || is_total(i);
  const AxisLabels* labels = this->labels(node.id);
  if (node.op->role == OpRole::Variable) {
    const auto at = slices.find(variable_of_value({node.id, 0}));
    if (at != slices.end()) cut.made[0] = ExpertLayout::slice(at->second);
  } else if (has_totals) {
    if (!labels || !find_labels(node, *labels, walk, cut) || !add_totals(node, *labels, walk, cut))
      throw InvalidArgument(place_of(node) +
                            ": it changes a gradient of experts that lie on several workers in a way that "
                            "only gradients of whole weights can be: leave these weights out of "
                            "strategy.experts.match, or set strategy.experts.automatic: false");
  } else if (!labels || !find_labels(node, *labels, walk, cut) || !fits(node, *labels, walk, cut)) {
    cut = own;
  }
  const auto at = static_cast<std::size_t>(node.id);
  walk.found.needed[at] = std::move(cut.needed);
  walk.found.made[at] = std::move(cut.made);
}

ExpertFlow ExpertGraph::flow(const std::map<std::string, int>& slices) const {
  // What a node behind another one has exchanged is known in the second turn.
  return walk_over(slices, walk_over(slices, {}).sent).found;
}

ExpertGraph::Walk ExpertGraph::walk_over(const std::map<std::string, int>& slices,
                                         std::map<ValueRef, ExpertLayout> sent) const {
  Walk walk;
  walk.sent = std::move(sent);
  const Graph& graph = nodes_.inferred;
  walk.found.made.resize(static_cast<std::size_t>(graph.size()));
  walk.found.needed.resize(static_cast<std::size_t>(graph.size()));
  const auto exchange = [&](ValueRef value, ExpertLayout to) {
    const ExpertLayout from = walk.made(value);
    if (from == to) return;
    const bool is_local =
        from.kind == ExpertLayout::Own && to.kind == ExpertLayout::Slice && to.rows == ExpertLayout::kNoRows;
    if (from.kind == ExpertLayout::Slice && to.kind == ExpertLayout::Slice) to = {};  // through own rows
    if (is_local || (from.kind == ExpertLayout::Slice && to.kind == ExpertLayout::Total)) return;
    if (from.kind == ExpertLayout::Own && walk.made(origin(value)).kind == ExpertLayout::Own)
      value = origin(value);
    if (from.kind == ExpertLayout::Own && to.kind == ExpertLayout::Slice) walk.sent.emplace(value, to);
    if (walk.exchanged.insert({value, to}).second)
      walk.found.exchanges.push_back(
          {value, from, to, value_bytes(graph.info(value)), nodes_.is(nodes_.backward, value.node)});
  };
  for (const NodeId id : nodes_.order) {
    const Node& node = graph.node(id);
    follow(node, slices, walk);
    const std::vector<ExpertLayout>& needed = walk.found.needed[static_cast<std::size_t>(id)];
    for (std::size_t i = 0; i < needed.size(); ++i)
      if (!reads_shape_only(node, i)) exchange(node.inputs[i], needed[i]);
    if (!nodes_.is(nodes_.backward, id)) note_wishes(node, slices, walk);
  }
  for (const VariableGradient& gradient : training_.gradients) {
    const auto at = slices.find(gradient.variable.name);
    if (at != slices.end())
      exchange(gradient.dense, ExpertLayout::total(at->second));
    else
      exchange(gradient.slices ? gradient.slices->values : gradient.dense, {});
    if (gradient.slices) exchange(gradient.slices->indices, {});
  }
  for (const ValueRef value : {training_.loss, training_.weighted_loss}) exchange(value, {});
  return walk;
}

}  // namespace braid::worker
