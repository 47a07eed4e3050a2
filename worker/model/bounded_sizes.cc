#include "worker/model/bounded_sizes.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

#include "engine/ir/op.h"
#include "worker/model/bounded_values.h"
#include "worker/step/training_graph.h"

namespace braid::worker {

ValueRef BoundedGraph::op(const char* op, std::vector<ValueRef> inputs, AttrMap attrs) {
  return add_node(graph, op, node().name + "/" + op, std::move(inputs), std::move(attrs), at);
}

ValueRef BoundedGraph::number(std::int64_t value, DType dtype) {
  const Tensor scalar =
      dtype == DType::Int32 ? Tensor::scalar(static_cast<std::int32_t>(value)) : Tensor::scalar(value);
  return op("Const", {}, {{"dtype", dtype}, {"value", scalar}});
}

ValueRef BoundedGraph::numbers(std::vector<std::int64_t> values) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  return op("Const", {}, {{"dtype", DType::Int64}, {"value", Tensor::from<std::int64_t>(shape, values)}});
}

ValueRef BoundedGraph::like(ValueRef value, double filler) {
  const DType dtype = graph.info(value).dtype;
  if (dtype == DType::Bool)
    return op("Const", {}, {{"dtype", dtype}, {"value", Tensor::scalar(filler != 0)}});
  const ValueRef made =
      op("Const", {}, {{"dtype", DType::Float32}, {"value", Tensor::scalar(static_cast<float>(filler))}});
  return cast(made, dtype);
}

ValueRef BoundedGraph::cast(ValueRef value, DType dtype) {
  const DType from = graph.info(value).dtype;
  return from == dtype ? value : op("Cast", {value}, {{"SrcT", from}, {"DstT", dtype}});
}

ValueRef BoundedGraph::flat(ValueRef value) {
  return rank(value) == 1 ? value : op("Reshape", {value, numbers({-1})}, {{"Tshape", DType::Int64}});
}

ValueRef BoundedGraph::column(ValueRef matrix, std::int64_t at_column) {
  return op("GatherV2", {matrix, number(at_column), number(1, DType::Int32)});
}

ValueRef BoundedGraph::element(ValueRef vector, std::int64_t at_element) {
  return op("GatherV2", {vector, number(at_element), number(0, DType::Int32)});
}

ValueRef BoundedGraph::mask_for(const PlaceSet& set, ValueRef value) {
  const int dims = rank(value);
  if (dims <= 1) return set.valid;
  std::vector<std::int64_t> shape(static_cast<std::size_t>(dims), 1);
  shape[0] = -1;
  return op("Reshape", {set.valid, numbers(std::move(shape))}, {{"Tshape", DType::Int64}});
}

ValueRef BoundedGraph::masked(const PlaceSet& set, ValueRef value, double filler) {
  return set.all ? value : op("SelectV2", {mask_for(set, value), value, like(value, filler)});
}

ValueRef BoundedGraph::strides(ValueRef shape) {
  return op("Cumprod", {shape, number(0, DType::Int32)}, {{"exclusive", true}, {"reverse", true}});
}

ValueRef BoundedGraph::coordinates(ValueRef linear, ValueRef shape) {
  const ValueRef rows = op("ExpandDims", {linear, number(1, DType::Int32)});
  return op("FloorMod", {op("FloorDiv", {rows, strides(shape)}), shape});
}

int BoundedGraph::rank(ValueRef value) const {
  const Shape& shape = graph.info(value).shape;
  return shape.has_rank() ? shape.rank() : -1;
}

const Bounded* BoundedGraph::find(ValueRef value) const {
  const auto found = values_.find(value);
  return found == values_.end() ? nullptr : &found->second;
}

namespace {

/// Whether the values are equal, as far as nodes of conditions go.
bool is_same(const Graph& graph, ValueRef a, ValueRef b) {
  if (a == b) return true;
  const Tensor *left = graph.known_value(a), *right = graph.known_value(b);
  if (left && right)
    return left->dtype() == right->dtype() && left->shape() == right->shape() &&
           left->dtype() != DType::String && std::memcmp(left->raw(), right->raw(), left->bytes()) == 0;
  static const std::set<std::string_view> kConditions{
      "Cast",      "Equal",      "ExpandDims", "Greater",   "GreaterEqual", "Identity", "Less",
      "LessEqual", "LogicalAnd", "LogicalNot", "LogicalOr", "NotEqual",     "Reshape"};
  const Node &x = graph.node(a.node), &y = graph.node(b.node);
  const bool alike = x.op == y.op && a.output == b.output && x.inputs.size() == y.inputs.size() &&
                     !x.inputs.empty() && graph.info(a).dtype == graph.info(b).dtype &&
                     kConditions.contains(x.op->name);
  return alike && std::equal(x.inputs.begin(), x.inputs.end(), y.inputs.begin(),
                             [&](ValueRef u, ValueRef v) { return is_same(graph, u, v); });
}

}  // namespace

const Bounded* BoundedGraph::chosen_by(ValueRef condition) const {
  const auto at = std::find_if(choices_.begin(), choices_.end(),
                               [&](const auto& choice) { return is_same(graph, choice.first, condition); });
  return at == choices_.end() ? nullptr : find(at->second);
}

Bounded BoundedGraph::rows_of(ValueRef value) {
  if (const Bounded* found = find(value)) return *found;
  std::shared_ptr<const PlaceSet>& set = whole_[value];
  if (!set) {
    const ValueRef count = op("GatherV2", {op("Shape", {value}, {{"out_type", DType::Int64}}), numbers({0}),
                                           number(0, DType::Int32)});
    const ValueRef yes = op("Const", {}, {{"dtype", DType::Bool}, {"value", Tensor::scalar(true)}});
    set = std::make_shared<PlaceSet>(PlaceSet{op("Fill", {count, yes}), {}, true});
  }
  return {Bounded::Kind::Rows, set, value};
}

std::shared_ptr<const PlaceSet> BoundedGraph::part_of(const Bounded& parts, int k) {
  std::shared_ptr<const PlaceSet>& set = parts_[{parts.padded, k}];
  if (!set) {
    const ValueRef here = op("Equal", {parts.padded, number(k, graph.info(parts.padded).dtype)});
    set = std::make_shared<PlaceSet>(PlaceSet{op("LogicalAnd", {parts.set->valid, here}), {}, false});
  }
  return set;
}

void BoundedGraph::merge(const std::shared_ptr<const PlaceSet>& a, const std::shared_ptr<const PlaceSet>& b) {
  const auto both = std::make_shared<const PlaceSet>(
      PlaceSet{op("LogicalAnd", {a->valid, b->valid}), a->coordinates, false});
  const std::shared_ptr<const PlaceSet> first = a, second = b;  // which may be of values_
  for (auto& [value, bounded] : values_)
    for (auto* set : {&bounded.set, &bounded.of})
      if (*set == first || *set == second) *set = both;
}

void BoundedGraph::replace(ValueRef value, ValueRef with) {
  const Node& old = graph.node(value.node);
  if (old.outputs.size() > 1) {
    graph.replace_uses(value, with);
    return;
  }
  // Its name stays, as the job may know it.
  const std::string name = old.name;
  const int stream = old.stream;
  graph.remove(value.node);
  const ValueRef made = add_node(graph, "Identity", name, {with});
  graph.mutable_node(made.node).stream = stream;
  graph.replace_uses(value, made);
  for (NodeId other = 0; other < graph.size(); ++other) {
    Node& user = graph.mutable_node(other);
    std::replace(user.control_inputs.begin(), user.control_inputs.end(), value.node, made.node);
    if (user.colocate_with == value.node) user.colocate_with = made.node;
  }
}

/// Ids of places that were not chosen become one that was, so that no row learns that the batch does not
/// name.
ValueRef BoundedGraph::safe_ids(const Bounded& ids) {
  if (ids.set->all || ids.limits.valid()) return ids.padded;
  const ValueRef first = op("ArgMax", {cast(ids.set->valid, DType::Int32), number(0, DType::Int32)},
                            {{"output_type", DType::Int64}});
  const ValueRef some = op("GatherV2", {ids.padded, first, number(0, DType::Int32)});
  const ValueRef any = op("Any", {ids.set->valid, numbers({0})}, {{"keep_dims", false}});
  const ValueRef filler = op("SelectV2", {any, some, like(ids.padded, 0)});
  return op("SelectV2", {ids.set->valid, ids.padded, filler});
}

void BoundedGraph::drop_controls(Node& node) const {
  std::erase_if(node.control_inputs, [&](NodeId before) { return find({before, 0}) != nullptr; });
}

ValueRef BoundedGraph::copy_with_padded_inputs() {
  Node copy = node();
  copy.id = kNoNode;
  copy.name = graph.unique_name(copy.name + "/padded");
  drop_controls(copy);
  copy.outputs.clear();
  copy.known_values.clear();
  for (ValueRef& input : copy.inputs)
    if (const Bounded* bounded = find(input)) input = bounded->padded;
  return {graph.add(std::move(copy)), 0};
}

namespace {

void bound_root(BoundedGraph& g, ValueRef root) {
  const Bounded* found = g.find(root);
  if (!found || found->kind != Bounded::Kind::Rows || g.graph.node(root.node).outputs.size() != 1) return;
  g.at = root.node;
  const bool ids = !is_floating(g.graph.info(found->padded).dtype) && g.rank(found->padded) == 1;
  g.replace(root, ids ? g.safe_ids(*found) : g.masked(*found->set, found->padded, 0));
}

}  // namespace

std::vector<NodeId> bound_sizes(Graph& graph, const std::vector<std::string>& roots) {
  std::map<std::string, BoundedRule> rules;
  add_bounded_rules(rules);
  add_row_rules(rules);
  add_cross_rules(rules);
  add_sparse_rules(rules);
  BoundedGraph g(graph);
  std::vector<NodeId> left;
  for (const NodeId id : graph.topological_order()) {
    const Node& node = graph.node(id);
    const bool known = !node.outputs.empty() && graph.known_value({id, 0});
    const bool touched =
        std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueRef v) { return g.find(v); });
    const auto rule = rules.find(node.op->name);
    g.at = id;
    if (known) continue;
    if (node.op->name == "NoOp") g.drop_controls(graph.mutable_node(id));
    const bool is_pointwise =
        rule == rules.end() && touched && node.op->traits.elements == Elements::Pointwise;
    const bool is_done = rule != rules.end() ? rule->second(g) : is_pointwise && rules.at("pointwise")(g);
    if (touched && !is_done && node.op->name != "NoOp") left.push_back(id);
  }
  for (const std::string& root : roots)
    if (const NodeId id = graph.find(root); id != kNoNode) bound_root(g, {id, 0});
  return left;
}

}  // namespace braid::worker
