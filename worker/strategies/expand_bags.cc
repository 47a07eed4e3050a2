#include "worker/strategies/expand_bags.h"

#include <string>

#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/ops/sparse/bag_args.h"
#include "worker/step/training_graph.h"
#include "worker/strategies/table_gathers.h"

namespace braid::worker {
namespace {

ValueRef constant(Graph& graph, const std::string& name, std::int32_t value) {
  return add_node(graph, "Const", name, {}, {{"dtype", DType::Int32}, {"value", Tensor::scalar(value)}});
}

/// The ids as int64, which is what travels; whoever reads them, the gradient too, reads these.
ValueRef wide_ids(Graph& graph, ValueRef ids, const std::string& name) {
  if (graph.info(ids).dtype == DType::Int64) return ids;
  const ValueRef wide = add_node(graph, "Cast", name + "/wide_ids", {ids},
                                 {{"SrcT", graph.info(ids).dtype}, {"DstT", DType::Int64}});
  graph.replace_uses(ids, wide);
  graph.mutable_node(wide.node).inputs[0] = ids;
  return wide;
}

/// [n] int32: the bag that each of `ids` belongs to, -1 of those of none.
ValueRef bag_numbers(Graph& graph, const Node& bag, const BagInputs& in, ValueRef ids, NodeId beside) {
  const ValueRef offsets = bag.inputs[static_cast<std::size_t>(in.offsets(0))];
  const ValueRef of = add_node(graph, "braid.BagOf", bag.name + "/bags", {ids, offsets}, {}, beside);
  const ValueRef known = add_node(graph, "braid.BagIds", bag.name + "/known", {ids, offsets}, {}, beside);
  const ValueRef zero =
      add_node(graph, "Const", bag.name + "/zero", {},
               {{"dtype", DType::Int64}, {"value", Tensor::scalar<std::int64_t>(0)}}, beside);
  const ValueRef is_none =
      add_node(graph, "Less", bag.name + "/none", {known, zero}, {{"T", DType::Int64}}, beside);
  return add_node(graph, "SelectV2", bag.name + "/numbers",
                  {is_none, constant(graph, bag.name + "/of_none", -1), of}, {{"T", DType::Int32}}, beside);
}

/// Which of the gather's ids are in bags. Lists of what travels are made on the host, from the batch.
void say_known_ids(Graph& graph, NodeId gather, ValueRef offsets) {
  const ValueRef known = add_node(graph, "braid.BagIds", graph.node(gather).name + "/known",
                                  {graph.node(gather).inputs[1], offsets}, {});
  graph.mutable_node(known.node).device = "/device:CPU:0";
  graph.mutable_node(gather).attrs.set(kKnownIds, graph.node(known.node).name);
}

/// The sums of rows [n, dim] of the ids, as bags.
ValueRef sums_of_rows(Graph& graph, const Node& bag, const BagInputs& in, ValueRef ids, ValueRef rows,
                      NodeId beside) {
  const ValueRef offsets = bag.inputs[static_cast<std::size_t>(in.offsets(0))];
  const ValueRef size =
      add_node(graph, "Size", bag.name + "/offsets", {offsets}, {{"out_type", DType::Int32}}, beside);
  const ValueRef bags =
      add_node(graph, "Sub", bag.name + "/count", {size, constant(graph, bag.name + "/one", 1)},
               {{"T", DType::Int32}}, beside);
  return add_node(graph, "UnsortedSegmentSum", bag.name + "/sum",
                  {rows, bag_numbers(graph, bag, in, ids, beside), bags}, {{"T", DType::Float32}}, beside);
}

/// The sums of rows [B, hot, dim].
ValueRef sums_of_lists(Graph& graph, const Node& bag, ValueRef rows, NodeId beside) {
  return add_node(graph, "Sum", bag.name + "/sum", {rows, constant(graph, bag.name + "/axis", 1)},
                  {{"T", DType::Float32}, {"keep_dims", false}}, beside);
}

void expand(Graph& graph, NodeId id, std::string_view strategy) {
  const Node bag = graph.node(id);
  const BagInputs in = bag_inputs(bag.attrs, true);
  if (in.pooling == Pooling::Max)
    throw InvalidArgument("[braid.Bag] node '" + bag.name + "': strategy " + std::string(strategy) +
                          " has no pooling MAX: use LOCAL or ALLREDUCE, or pool by SUM or MEAN");
  const auto input = [&](int i) { return bag.inputs[static_cast<std::size_t>(i)]; };
  const ValueRef ids = wide_ids(graph, input(in.ids(0)), bag.name);
  const Shape& shape = graph.info(ids).shape;
  const std::int64_t hot = in.ragged ? 1 : shape.has_rank() ? shape[1] : -1;
  if (hot < 0)
    throw InvalidArgument("[braid.Bag] node '" + bag.name + "': strategy " + std::string(strategy) +
                          " needs to know how many ids a bag has");
  Node gather;
  gather.op = &OpRegistry::global().require("ResourceGather");
  gather.name = graph.unique_name(bag.name + "/rows");
  gather.inputs = {bag.inputs[0], ids};
  gather.attrs = {{"dtype", bag.attrs.require<DType>("dtype")}};
  gather.stream = bag.stream;
  gather.device = bag.device;
  gather.colocate_with = bag.colocate_with;
  ValueRef rows{graph.add(std::move(gather)), 0};  // [B, hot, dim], or [n, dim]
  const NodeId beside = rows.node;
  if (in.ragged) say_known_ids(graph, rows.node, input(in.offsets(0)));
  const std::vector<std::int64_t> beside_rows =
      in.ragged ? std::vector<std::int64_t>{-1, 1} : std::vector<std::int64_t>{-1, hot, 1};
  if (in.weighted)
    rows = add_node(graph, "Mul", bag.name + "/weighted",
                    {rows, reshaped(graph, input(in.weights(0)), beside_rows, bag.name + "/weights")},
                    {{"T", DType::Float32}}, beside);
  ValueRef sums =
      in.ragged ? sums_of_rows(graph, bag, in, ids, rows, beside) : sums_of_lists(graph, bag, rows, beside);
  if (in.pooling != Pooling::Sum) {
    std::vector<ValueRef> inputs{sums, ids};
    if (in.ragged) inputs.push_back(input(in.offsets(0)));
    if (in.weighted) inputs.push_back(input(in.weights(0)));
    AttrMap attrs;
    for (const char* name : {kPooling, kRagged, kBagWeights})
      if (const Attr* value = bag.attrs.find(name)) attrs.set(name, *value);
    sums =
        add_node(graph, "braid.BagScale", bag.name + "/scale", std::move(inputs), std::move(attrs), beside);
  }
  put_in_place_of(graph, id, sums);
}

}  // namespace

bool is_bag_of(const Node& node, NodeId handle) {
  return !node.removed && node.op->name == "braid.Bag" && node.inputs[0] == ValueRef{handle, 0};
}

bool is_ragged_bag(const Node& node) {
  return node.op->name == "braid.Bag" && node.attrs.get(kRagged, false);
}

void expand_bags(Graph& graph, const VariableInfo& table, std::string_view strategy) {
  for (NodeId id = 0, nodes = graph.size(); id < nodes; ++id)
    if (is_bag_of(graph.node(id), table.handle)) expand(graph, id, strategy);
}

void expand_bags(Graph& graph, std::string_view strategy) {
  for (const VariableInfo& variable : list_variables(graph)) expand_bags(graph, variable, strategy);
}

}  // namespace braid::worker
