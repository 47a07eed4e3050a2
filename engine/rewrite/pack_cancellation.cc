// What leaves a batch only to be joined again, or comes apart only to be batched, is moved in one piece:
//
//   Unpack, then AddN of all lanes            -> Sum over the lanes
//   Unpack, then Pack or Concat of all lanes  -> Transpose (and Reshape)
//   Unpack or an even split, then Pack        -> (Reshape and) Transpose
//
// An Unpack or split that others use as well stays for them.
#include <algorithm>
#include <numeric>
#include <optional>

#include "engine/rewrite/horizontal_fusion.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

const Pattern& pack() {
  static const Pattern pattern{"Pack"};
  return pattern;
}
const Pattern& unpack() {
  static const Pattern pattern{"Unpack"};
  return pattern;
}

std::size_t as_index(std::int64_t i) { return static_cast<std::size_t>(i); }

int axis_of(const Graph& graph, const Node& node) {
  const auto axis = static_cast<int>(node.attrs.get<std::int64_t>("axis", 0));
  const int rank = graph.info(node.inputs[0]).shape.rank() + (pack().names(node) ? 1 : 0);
  return axis < 0 ? axis + rank : axis;
}

/// A known axis of a value.
std::optional<int> known_axis(const Graph& graph, ValueRef axis, ValueRef of) {
  const Tensor* value = graph.known_value(axis);
  if (!value) return std::nullopt;
  const auto at = static_cast<int>(tensor_to_int64s(*value)[0]);
  return at < 0 ? at + graph.info(of).shape.rank() : at;
}

// -----------------------------------------------------------------------------------------------------
// guards

/// The node whose outputs, all of them and in their order, are the first inputs of `node`.
NodeId all_outputs_of_one(const Rewrite& r, const Node& node, std::size_t parts) {
  if (parts < 2 || !node.control_inputs.empty() || r.plan.is_fed(node)) return kNoNode;
  const Node& source = r.node(node.inputs[0].node);
  if (source.outputs.size() != parts || !source.control_inputs.empty()) return kNoNode;
  for (std::size_t i = 0; i < parts; ++i)
    if (node.inputs[i] != ValueRef{source.id, static_cast<int>(i)} || r.plan.feed_of(node.inputs[i]) >= 0)
      return kNoNode;
  return source.id;
}

/// The batch of which the node joins all lanes. `besides`: inputs that are no lanes, the last ones.
std::optional<ValueRef> joined_lanes(const Rewrite& r, const Node& node, std::size_t besides) {
  const NodeId source = all_outputs_of_one(r, node, node.inputs.size() - besides);
  if (source == kNoNode || !unpack().names(r.node(source)) || axis_of(r.graph, r.node(source)) != 0)
    return std::nullopt;
  return r.node(source).inputs[0];
}

std::optional<ValueRef> find_sum(const Rewrite& r, const Match& match) {
  return joined_lanes(r, r.node(match[0]), 0);
}

struct Concat {
  ValueRef lanes;
  int axis;
};
std::optional<Concat> find_concat(const Rewrite& r, const Match& match) {
  const Node& node = r.node(match[0]);
  const auto lanes = joined_lanes(r, node, 1);
  const auto axis = lanes ? known_axis(r.graph, node.inputs.back(), node.inputs[0]) : std::nullopt;
  if (!axis) return std::nullopt;
  return Concat{*lanes, *axis};
}

/// A value whose parts along `from` are packed along `to`. `parts`: 0, or how many there are, where the value
/// has yet to be reshaped to have them as an axis.
struct Repack {
  ValueRef value;
  int from, to;
  std::int64_t parts = 0;
};
std::optional<Repack> find_pack(const Rewrite& r, const Match& match) {
  static const Pattern split{"Split", "braid.SplitLike"};
  const Node& node = r.node(match[0]);
  if (const auto lanes = joined_lanes(r, node, 0)) return Repack{*lanes, 0, axis_of(r.graph, node)};
  const NodeId source = all_outputs_of_one(r, node, node.inputs.size());
  if (source == kNoNode || axis_of(r.graph, node) != 0) return std::nullopt;
  const Node& from = r.node(source);
  if (unpack().names(from)) return Repack{from.inputs[0], axis_of(r.graph, from), 0};
  if (!split.names(from)) return std::nullopt;
  const auto axis = known_axis(r.graph, from.inputs[0], from.inputs[1]);
  const bool is_even = std::all_of(from.outputs.begin(), from.outputs.end(), [&](const OutputInfo& info) {
    return info.shape == from.outputs[0].shape;
  });
  if (!axis || !is_even) return std::nullopt;
  return Repack{from.inputs[1], *axis, 0, static_cast<std::int64_t>(from.outputs.size())};
}

// -----------------------------------------------------------------------------------------------------
// builds

ValueRef add(Graph& graph, const Node& like, const std::string& op, const std::string& suffix,
             std::vector<ValueRef> inputs, AttrMap attrs = {}) {
  Node node;
  node.op = &OpRegistry::global().require(op);
  node.name = graph.unique_name(like.name + "/" + suffix);
  node.attrs = std::move(attrs);
  node.inputs = std::move(inputs);
  node.stream = like.stream;
  node.device = like.device;
  node.include_grad = like.include_grad;
  node.forward_of = like.forward_of;
  return {graph.add(std::move(node)), 0};
}

ValueRef numbers(Graph& graph, const Node& like, const std::string& suffix,
                 const std::vector<std::int32_t>& values) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  return add(graph, like, "Const", suffix, {},
             {{"dtype", DType::Int32}, {"value", Tensor::from<std::int32_t>(shape, values)}});
}

ValueRef reshape(Graph& graph, const Node& like, ValueRef value, const std::vector<std::int64_t>& dims) {
  return add(graph, like, "Reshape", "joined",
             {value, numbers(graph, like, "shape", {dims.begin(), dims.end()})});
}

ValueRef move_axis(Graph& graph, const Node& like, ValueRef value, int from, int to) {
  if (from == to) return value;
  std::vector<std::int32_t> order(as_index(graph.info(value).shape.rank()));
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + from);
  order.insert(order.begin() + to, from);
  return add(graph, like, "Transpose", "moved", {value, numbers(graph, like, "order", order)});
}

void build_sum(Rewrite& r, const Match& match, ValueRef lanes) {
  const Node node = r.node(match[0]);  // a copy: nodes are added
  replace_value(r.plan, {node.id, 0},
                add(r.graph, node, "Sum", "lanes", {lanes, numbers(r.graph, node, "axis", {0})},
                    {{"keep_dims", false}}));
}

void build_concat(Rewrite& r, const Match& match, const Concat& concat) {
  const Node node = r.node(match[0]);
  const auto dims = node.outputs[0].shape.dims();
  replace_value(r.plan, {node.id, 0},
                reshape(r.graph, node, move_axis(r.graph, node, concat.lanes, 0, concat.axis),
                        {dims.begin(), dims.end()}));
}

void build_pack(Rewrite& r, const Match& match, const Repack& repack) {
  const Node node = r.node(match[0]);
  ValueRef value = repack.value;
  if (repack.parts > 0) {
    const auto whole = r.graph.info(value).shape.dims();
    std::vector<std::int64_t> dims(whole.begin(), whole.end());
    dims[as_index(repack.from)] /= repack.parts;
    dims.insert(dims.begin() + repack.from, repack.parts);
    value = reshape(r.graph, node, value, dims);
  }
  replace_value(r.plan, {node.id, 0}, move_axis(r.graph, node, value, repack.from, repack.to));
}

}  // namespace

void cancel_packs(Plan& plan) {
  run_rules(plan, {.rules = {{"sum of lanes", {"AddN"}, find_sum, build_sum},
                             {"joined lanes", {"ConcatV2"}, find_concat, build_concat},
                             {"packed parts", pack(), find_pack, build_pack}},
                   .prunes = false});
}

}  // namespace braid
