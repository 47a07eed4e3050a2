// What is done to each output of an Unpack alike is done once, before it:
//
//   f(u[0], k0), f(u[1], k1), ...  where u = Unpack(x)  ->  Unpack(f(x, [k0, k1, ...]))
//
// f is elementwise; its other operands are constants of one element each, equal or not, or values of which
// the same holds: whole chains move. So the columns of a batch are shifted, clipped or scaled by one node
// each step, not one a column. Every element is computed as before, so bits are kept. Nodes that the user put
// on different streams stay where they are.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "engine/graph/passes.h"
#include "engine/ir/op.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

const Pattern& unpack_of_lanes() {
  static const Pattern pattern{"Unpack"};
  return pattern;
}

/// A value of each lane, and what they are the outputs of an Unpack of.
struct Lanes {
  std::vector<ValueRef> values;
  ValueRef whole;
};

class Hoist {
 public:
  Hoist(Plan& plan, NodeId unpack)
      : plan_(plan),
        graph_(plan.program.graph),
        users_(graph_),
        source_(graph_.node(unpack)),
        whole_(graph_.info(source_.inputs[0]).shape),
        axis_(static_cast<int>(source_.attrs.get<std::int64_t>("axis", 0))) {
    if (axis_ < 0) axis_ += whole_.rank();
    Lanes first{{}, source_.inputs[0]};
    for (int lane = 0; lane < static_cast<int>(source_.outputs.size()); ++lane)
      first.values.push_back({unpack, lane});
    lanes_.push_back(std::move(first));
  }

  /// How many nodes were replaced.
  int run() {
    for (std::size_t i = 0; i < lanes_.size(); ++i)  // grows
      for (const NodeId user : users_.of(lanes_[i].values[0].node)) try_node(user);
    for (std::size_t i = 1; i < lanes_.size(); ++i) take_apart(lanes_[i]);
    return static_cast<int>(moved_.size());
  }

 private:
  /// The lanes that `value` is lane `lane` of, or -1.
  int lanes_of(ValueRef value, std::size_t lane) const {
    for (std::size_t i = 0; i < lanes_.size(); ++i)
      if (lanes_[i].values[lane] == value) return static_cast<int>(i);
    return -1;
  }

  const Tensor* number(ValueRef value) const {
    const Tensor* const known = graph_.known_value(value);
    return known && known->elements() == 1 ? known : nullptr;
  }

  bool may_move(const Node& node) const {
    return node.op->traits.elements == Elements::Pointwise && node.outputs.size() == 1 &&
           is_inner(plan_, node.id) && !users_.is_named(node.id) && together(node, source_) &&
           !graph_.known_value({node.id, 0}) && !moved_.contains(node.id);
  }

  /// Whether `node` does in lane `lane` what `first` does in lane 0.
  bool is_like(const Node& first, const Node& node, std::size_t lane) const {
    if (node.op != first.op || node.inputs.size() != first.inputs.size() || !may_move(node) ||
        node.outputs[0].shape != first.outputs[0].shape || !same_attributes(node, first))
      return false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const int of_first = lanes_of(first.inputs[i], 0);
      if (of_first != lanes_of(node.inputs[i], lane)) return false;
      if (of_first >= 0) continue;
      const Tensor *a = number(first.inputs[i]), *b = number(node.inputs[i]);
      if (!a || !b || a->dtype() != b->dtype() || a->shape() != b->shape()) return false;
    }
    return true;
  }

  void try_node(NodeId id) {
    const Node& first = graph_.node(id);
    if (!may_move(first) || first.outputs[0].shape != graph_.info(lanes_[0].values[0]).shape) return;
    std::size_t from = first.inputs.size();
    for (std::size_t i = 0; i < first.inputs.size(); ++i) {
      if (lanes_of(first.inputs[i], 0) >= 0)
        from = i;
      else if (!number(first.inputs[i]))
        return;
    }
    if (from == first.inputs.size()) return;
    const Lanes& source = lanes_[static_cast<std::size_t>(lanes_of(first.inputs[from], 0))];
    std::vector<NodeId> nodes{id};
    for (std::size_t lane = 1; lane < source.values.size(); ++lane) {
      const std::vector<NodeId>& users = users_.of(source.values[lane].node);
      const auto found = std::find_if(users.begin(), users.end(), [&](NodeId user) {
        return std::find(nodes.begin(), nodes.end(), user) == nodes.end() &&
               is_like(first, graph_.node(user), lane);
      });
      if (found == users.end()) return;
      nodes.push_back(*found);
    }
    if (is_like(first, first, 0)) move(nodes);
  }

  /// The constants of the lanes' input `input`: one where they are equal, else one along the axis.
  ValueRef constants(const std::vector<NodeId>& nodes, std::size_t input) {
    const auto at = [&](std::size_t lane) { return graph_.node(nodes[lane]).inputs[input]; };
    const Tensor first = *number(at(0));
    const std::size_t bytes = dtype_size(first.dtype());
    std::vector<std::int64_t> dims(static_cast<std::size_t>(whole_.rank() - axis_), 1);
    dims[0] = static_cast<std::int64_t>(nodes.size());
    Tensor all = Tensor::zeros(first.dtype(), Shape(dims));
    bool equal = true;
    for (std::size_t lane = 0; lane < nodes.size(); ++lane) {
      const Tensor& one = *number(at(lane));
      equal &= std::equal(one.raw(), one.raw() + bytes, first.raw());
      std::copy_n(one.raw(), bytes, all.raw() + lane * bytes);
    }
    if (equal && first.shape().rank() == 0) return at(0);
    Node node;
    node.op = &OpRegistry::global().require("Const");
    node.name = graph_.unique_name(graph_.node(nodes[0]).name + "/of_lanes");
    node.attrs = {{"dtype", first.dtype()}, {"value", std::move(all)}};
    node.device = source_.device;
    return {graph_.add(std::move(node)), 0};
  }

  void move(const std::vector<NodeId>& nodes) {
    const Node first = graph_.node(nodes[0]);
    Node made = first;
    made.id = kNoNode;
    made.name = graph_.unique_name(first.name + "/of_all");
    made.outputs.clear();
    made.known_values.clear();
    for (std::size_t i = 0; i < first.inputs.size(); ++i) {
      const int of = lanes_of(first.inputs[i], 0);
      made.inputs[i] = of >= 0 ? lanes_[static_cast<std::size_t>(of)].whole : constants(nodes, i);
    }
    Lanes done{{}, {graph_.add(std::move(made)), 0}};
    for (const NodeId id : nodes) done.values.push_back({id, 0});
    moved_.insert(nodes.begin(), nodes.end());
    lanes_.push_back(std::move(done));
  }

  /// An Unpack for those who read the lanes and did not move.
  void take_apart(const Lanes& lanes) {
    const auto stays = [&](ValueRef value) {
      const std::vector<NodeId>& users = users_.of(value.node);
      return std::any_of(users.begin(), users.end(), [&](NodeId user) { return !moved_.contains(user); });
    };
    if (std::none_of(lanes.values.begin(), lanes.values.end(), stays)) return;
    Node apart = source_;
    apart.id = kNoNode;
    apart.name = graph_.unique_name(source_.name + "/of_" + graph_.node(lanes.values[0].node).name);
    apart.inputs = {lanes.whole};
    apart.outputs.clear();
    apart.known_values.clear();
    const NodeId made = graph_.add(std::move(apart));
    for (std::size_t lane = 0; lane < lanes.values.size(); ++lane)
      replace_value(plan_, lanes.values[lane], {made, static_cast<int>(lane)});
  }

  Plan& plan_;
  Graph& graph_;
  const Users users_;
  const Node source_;
  const Shape whole_;
  int axis_;
  std::vector<Lanes> lanes_;
  std::set<NodeId> moved_;
};

}  // namespace

void hoist_before_unpack(Plan& plan) {
  int moved = 0;
  for (const NodeId id : plan.program.graph.topological_order()) {
    const Node& node = plan.program.graph.node(id);
    if (!unpack_of_lanes().names(node) || !is_plain(plan, node) || node.outputs.size() < 2 ||
        !plan.program.graph.info(node.inputs[0]).shape.is_static())
      continue;
    moved += Hoist(plan, id).run();
  }
  if (moved == 0) return;
  prune(plan, true);
  plan.note(fmt::format("{} nodes of single lanes are done to all lanes at once", moved));
}

}  // namespace braid
