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

#include "engine/ir/op.h"
#include "engine/rewrite/horizontal_fusion.h"

namespace braid {
namespace {

class Joins {
 public:
  explicit Joins(Plan& plan) : plan_(plan), graph_(plan.program.graph) {}

  void run() {
    for (const NodeId id : graph_.topological_order()) {
      const Node node = graph_.node(id);  // a copy: nodes are added
      const std::optional<ValueRef> joined = join(node);
      if (!joined) continue;
      graph_.replace_uses({id, 0}, *joined);
      for (ValueRef& fetch : plan_.fetches)
        if (fetch == ValueRef{id, 0}) fetch = *joined;
    }
  }

 private:
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

  std::optional<ValueRef> join(const Node& node) {
    const std::string& op = node.op->name;
    if ((op != "AddN" && op != "Pack" && op != "ConcatV2") || !node.control_inputs.empty() ||
        plan_.is_fed(node))
      return std::nullopt;
    const std::size_t parts = node.inputs.size() - (op == "ConcatV2" ? 1 : 0);
    const NodeId source = all_outputs_of_one(node, parts);
    if (source == kNoNode) return std::nullopt;
    const Node from = graph_.node(source);
    const bool lanes = from.op->name == "Unpack" && axis_of(from) == 0;
    if (op == "AddN" && lanes) return sum(node, from.inputs[0]);
    if (op == "ConcatV2" && lanes) return concat(node, from.inputs[0]);
    if (op != "Pack") return std::nullopt;
    if (lanes) return move_axis(node, from.inputs[0], 0, axis_of(node));
    return axis_of(node) == 0 ? pack(node, from) : std::nullopt;
  }

  /// The node whose outputs, all of them and in their order, are the first inputs of `node`.
  NodeId all_outputs_of_one(const Node& node, std::size_t parts) const {
    if (parts < 2) return kNoNode;
    const NodeId source = node.inputs[0].node;
    if (graph_.node(source).outputs.size() != parts || !graph_.node(source).control_inputs.empty())
      return kNoNode;
    for (std::size_t i = 0; i < parts; ++i)
      if (node.inputs[i] != ValueRef{source, static_cast<int>(i)} || plan_.feed_of(node.inputs[i]) >= 0)
        return kNoNode;
    return source;
  }

  int axis_of(const Node& node) const {
    const auto axis = static_cast<int>(node.attrs.get<std::int64_t>("axis", 0));
    const int rank = graph_.info(node.inputs[0]).shape.rank() + (node.op->name == "Pack" ? 1 : 0);
    return axis < 0 ? axis + rank : axis;
  }

  /// A known axis of a value.
  std::optional<int> known_axis(ValueRef axis, ValueRef of) const {
    const Tensor* value = graph_.known_value(axis);
    if (!value) return std::nullopt;
    const auto at = static_cast<int>(tensor_to_int64s(*value)[0]);
    return at < 0 ? at + graph_.info(of).shape.rank() : at;
  }

  ValueRef add(const Node& like, const std::string& op, const std::string& suffix,
               std::vector<ValueRef> inputs, AttrMap attrs = {}) {
    Node node;
    node.op = &OpRegistry::global().require(op);
    node.name = graph_.unique_name(like.name + "/" + suffix);
    node.attrs = std::move(attrs);
    node.inputs = std::move(inputs);
    node.stream = like.stream;
    node.device = like.device;
    node.include_grad = like.include_grad;
    node.forward_of = like.forward_of;
    return {graph_.add(std::move(node)), 0};
  }

  ValueRef numbers(const Node& like, const std::string& suffix, const std::vector<std::int32_t>& values) {
    return add(
        like, "Const", suffix, {},
        {{"dtype", DType::Int32},
         {"value", Tensor::from<std::int32_t>(Shape{static_cast<std::int64_t>(values.size())}, values)}});
  }

  ValueRef reshape(const Node& like, ValueRef value, const std::vector<std::int64_t>& dims) {
    return add(like, "Reshape", "joined", {value, numbers(like, "shape", {dims.begin(), dims.end()})});
  }

  ValueRef move_axis(const Node& like, ValueRef value, int from, int to) {
    if (from == to) return value;
    std::vector<std::int32_t> order(index(graph_.info(value).shape.rank()));
    std::iota(order.begin(), order.end(), 0);
    order.erase(order.begin() + from);
    order.insert(order.begin() + to, from);
    return add(like, "Transpose", "moved", {value, numbers(like, "order", order)});
  }

  ValueRef sum(const Node& node, ValueRef lanes) {
    return add(node, "Sum", "lanes", {lanes, numbers(node, "axis", {0})}, {{"keep_dims", false}});
  }

  std::optional<ValueRef> concat(const Node& node, ValueRef lanes) {
    const std::optional<int> axis = known_axis(node.inputs.back(), node.inputs[0]);
    if (!axis) return std::nullopt;
    const auto dims = node.outputs[0].shape.dims();
    return reshape(node, move_axis(node, lanes, 0, *axis), {dims.begin(), dims.end()});
  }

  std::optional<ValueRef> pack(const Node& node, const Node& from) {
    if (from.op->name == "Unpack") return move_axis(node, from.inputs[0], axis_of(from), 0);
    if (from.op->name != "Split" && from.op->name != "braid.SplitLike") return std::nullopt;
    const std::optional<int> axis = known_axis(from.inputs[0], from.inputs[1]);
    if (!axis) return std::nullopt;
    for (const OutputInfo& info : from.outputs)
      if (info.shape != from.outputs[0].shape) return std::nullopt;
    const auto whole = graph_.info(from.inputs[1]).shape.dims();
    std::vector<std::int64_t> dims(whole.begin(), whole.end());
    const auto parts = static_cast<std::int64_t>(from.outputs.size());
    dims[index(*axis)] /= parts;
    dims.insert(dims.begin() + *axis, parts);
    return move_axis(node, reshape(node, from.inputs[1], dims), *axis, 0);
  }

  Plan& plan_;
  Graph& graph_;
};

}  // namespace

void cancel_packs(Plan& plan) { Joins(plan).run(); }

}  // namespace braid
