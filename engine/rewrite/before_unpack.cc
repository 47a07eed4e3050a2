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
#include <optional>
#include <set>
#include <vector>

#include "engine/ir/op.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

/// A value of each lane: the outputs of the Unpack, or of nodes that do the same in each.
using Lanes = std::vector<ValueRef>;

/// The lanes that `value` is lane `lane` of, or -1.
int lanes_of(const std::vector<Lanes>& all, ValueRef value, std::size_t lane) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Lanes& lanes) { return lanes[lane] == value; });
  return found == all.end() ? -1 : static_cast<int>(found - all.begin());
}

/// The constant of one element that `value` is, or null.
const Tensor* number(const Graph& graph, ValueRef value) {
  const Tensor* const known = graph.known_value(value);
  return known && known->elements() == 1 ? known : nullptr;
}

/// The guard: what is done alike. The first lanes are the Unpack's; the others are of nodes that will move,
/// each behind what it reads.
class Alike {
 public:
  Alike(const Rewrite& rewrite, const Node& unpack)
      : plan_(rewrite.plan), graph_(rewrite.graph), users_(rewrite.users), source_(unpack) {
    Lanes first;
    for (int lane = 0; lane < static_cast<int>(source_.outputs.size()); ++lane)
      first.push_back({unpack.id, lane});
    lanes_.push_back(std::move(first));
  }

  std::vector<Lanes> find() {
    for (std::size_t i = 0; i < lanes_.size(); ++i)  // grows
      for (const NodeId user : users_.of(lanes_[i][0].node)) try_node(user);
    return lanes_;
  }

 private:
  bool may_move(const Node& node) const {
    return node.op->traits.elements == Elements::Pointwise && node.outputs.size() == 1 &&
           is_inner(plan_, node.id) && !users_.is_named(node.id) && together(node, source_) &&
           !graph_.known_value({node.id, 0}) && !moving_.contains(node.id);
  }

  /// Whether `node` does in lane `lane` what `first` does in lane 0.
  bool is_like(const Node& first, const Node& node, std::size_t lane) const {
    if (node.op != first.op || node.inputs.size() != first.inputs.size() || !may_move(node) ||
        node.outputs[0].shape != first.outputs[0].shape || !same_attributes(node, first))
      return false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const int of_first = lanes_of(lanes_, first.inputs[i], 0);
      if (of_first != lanes_of(lanes_, node.inputs[i], lane)) return false;
      if (of_first >= 0) continue;
      const Tensor *a = number(graph_, first.inputs[i]), *b = number(graph_, node.inputs[i]);
      if (!a || !b || a->dtype() != b->dtype() || a->shape() != b->shape()) return false;
    }
    return true;
  }

  void try_node(NodeId id) {
    const Node& first = graph_.node(id);
    if (!may_move(first) || first.outputs[0].shape != graph_.info(lanes_[0][0]).shape) return;
    int from = -1;
    for (const ValueRef input : first.inputs) {
      if (const int of = lanes_of(lanes_, input, 0); of >= 0)
        from = of;
      else if (!number(graph_, input))
        return;
    }
    if (from < 0 || !is_like(first, first, 0)) return;
    Lanes found{{id, 0}};
    for (std::size_t lane = 1; lane < lanes_[0].size(); ++lane) {
      const std::vector<NodeId>& users = users_.of(lanes_[static_cast<std::size_t>(from)][lane].node);
      const auto like = std::find_if(users.begin(), users.end(), [&](NodeId user) {
        return std::find(found.begin(), found.end(), ValueRef{user, 0}) == found.end() &&
               is_like(first, graph_.node(user), lane);
      });
      if (like == users.end()) return;
      found.push_back({*like, 0});
    }
    for (const ValueRef value : found) moving_.insert(value.node);
    lanes_.push_back(std::move(found));
  }

  const Plan& plan_;
  const Graph& graph_;
  const Users& users_;
  const Node& source_;
  std::vector<Lanes> lanes_;
  std::set<NodeId> moving_;
};

std::optional<std::vector<Lanes>> find_alike(const Rewrite& r, const Match& match) {
  const Node& unpack = r.node(match[0]);
  if (!is_plain(r.plan, unpack) || unpack.outputs.size() < 2 ||
      !r.graph.info(unpack.inputs[0]).shape.is_static())
    return std::nullopt;
  std::vector<Lanes> found = Alike(r, unpack).find();
  return found.size() > 1 ? std::optional(std::move(found)) : std::nullopt;
}

/// The build: one node for each of the lanes behind the first.
class Hoist {
 public:
  Hoist(Rewrite& rewrite, const Node& unpack, const std::vector<Lanes>& lanes)
      : plan_(rewrite.plan), graph_(rewrite.graph), users_(rewrite.users), source_(unpack), lanes_(lanes) {}

  void run() {
    wholes_ = {source_.inputs[0]};
    for (std::size_t i = 1; i < lanes_.size(); ++i) {
      wholes_.push_back(move(lanes_[i]));
      for (const ValueRef value : lanes_[i]) moved_.insert(value.node);
    }
    for (std::size_t i = 1; i < lanes_.size(); ++i) take_apart(lanes_[i], wholes_[i]);
  }

 private:
  /// The constants of the lanes' input `input`: one where they are equal, else one along the axis.
  ValueRef constants(const Lanes& lanes, std::size_t input) {
    const auto at = [&](std::size_t lane) { return graph_.node(lanes[lane].node).inputs[input]; };
    const Tensor first = *number(graph_, at(0));
    const std::size_t bytes = dtype_size(first.dtype());
    const int rank = graph_.info(source_.inputs[0]).shape.rank();
    const auto axis = static_cast<int>(source_.attrs.get<std::int64_t>("axis", 0));
    std::vector<std::int64_t> dims(static_cast<std::size_t>(axis < 0 ? -axis : rank - axis), 1);
    dims[0] = static_cast<std::int64_t>(lanes.size());
    Tensor all = Tensor::zeros(first.dtype(), Shape(dims));
    bool equal = true;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      const Tensor& one = *number(graph_, at(lane));
      equal &= std::equal(one.raw(), one.raw() + bytes, first.raw());
      std::copy_n(one.raw(), bytes, all.raw() + lane * bytes);
    }
    if (equal && first.shape().rank() == 0) return at(0);
    Node node;
    node.op = &OpRegistry::global().require("Const");
    node.name = graph_.unique_name(graph_.node(lanes[0].node).name + "/of_lanes");
    node.attrs = {{"dtype", first.dtype()}, {"value", std::move(all)}};
    node.device = source_.device;
    return {graph_.add(std::move(node)), 0};
  }

  ValueRef move(const Lanes& lanes) {
    const Node first = graph_.node(lanes[0].node);
    Node made = first;
    for (std::size_t i = 0; i < first.inputs.size(); ++i) {
      const int of = lanes_of(lanes_, first.inputs[i], 0);
      made.inputs[i] = of >= 0 ? wholes_[static_cast<std::size_t>(of)] : constants(lanes, i);
    }
    return {add_node(graph_, std::move(made), first.name + "/of_all"), 0};
  }

  /// An Unpack for those who read the lanes and did not move.
  void take_apart(const Lanes& lanes, ValueRef whole) {
    const auto stays = [&](ValueRef value) {
      const std::vector<NodeId>& users = users_.of(value.node);
      return std::any_of(users.begin(), users.end(), [&](NodeId user) { return !moved_.contains(user); });
    };
    if (std::none_of(lanes.begin(), lanes.end(), stays)) return;
    Node apart = source_;
    apart.inputs = {whole};
    const NodeId made =
        add_node(graph_, std::move(apart), source_.name + "/of_" + graph_.node(lanes[0].node).name);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane)
      replace_value(plan_, lanes[lane], {made, static_cast<int>(lane)});
  }

  Plan& plan_;
  Graph& graph_;
  const Users& users_;
  const Node source_;
  const std::vector<Lanes>& lanes_;
  std::vector<ValueRef> wholes_;  // what the lanes are of
  std::set<NodeId> moved_;
};

}  // namespace

void hoist_before_unpack(Plan& plan) {
  std::size_t moved = 0;
  const auto build = [&](Rewrite& r, const Match& match, const std::vector<Lanes>& lanes) {
    Hoist(r, r.node(match[0]), lanes).run();
    moved += (lanes.size() - 1) * lanes[0].size();
  };
  run_rules(plan,
            {.rules = {{"done alike", {"Unpack"}, find_alike, build}}, .text = [&](const std::vector<int>&) {
               return fmt::format("{} nodes of single lanes are done to all lanes at once", moved);
             }});
}

}  // namespace braid
