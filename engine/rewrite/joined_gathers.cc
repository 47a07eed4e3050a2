// Slices of one value by several lists of numbers that are joined along the last axis:
//
//   ConcatV2(BatchGather(x, i), BatchGather(x, j), -1) -> BatchGather(x, Pack(i, j)), seen as joined
//   AddN(BatchGatherGrad(SplitLike(dy):0, i), BatchGatherGrad(SplitLike(dy):1, j), rest...)
//                                                      -> AddN(BatchGatherGrad(dy, Pack(i, j)), rest...)
//
// So nothing is copied to be joined or taken apart. x is [batch, rows, width], the numbers are
// [batch, count], with any number of batch axes.
#include "engine/rewrite/joined_gathers.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/ir/tensor.h"
#include "engine/rewrite/batched_gathers.h"
#include "engine/rewrite/reshape_node.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

const Pattern& slices() {
  static const Pattern pattern{"braid.BatchGather"};
  return pattern;
}
const Pattern& slices_grad() {
  static const Pattern pattern{"braid.BatchGatherGrad"};
  return pattern;
}

ValueRef add(Rewrite& r, const Node& like, const char* op, std::vector<ValueRef> inputs, AttrMap attrs,
             const char* suffix) {
  Node node = like;
  node.op = &OpRegistry::global().require(op);
  node.inputs = std::move(inputs);
  node.attrs = std::move(attrs);
  return {add_node(r.graph, std::move(node), like.name + suffix), 0};
}

/// Numbers side by side: [batch, count, lists].
ValueRef packed(Rewrite& r, const Node& like, const std::vector<ValueRef>& lists) {
  const auto axis = static_cast<std::int64_t>(r.graph.info(lists[0]).shape.rank());
  return add(r, like, "Pack", lists, {{"N", std::ssize(lists)}, {"axis", axis}}, "/numbers");
}

/// Whether the node picks rows of x by the numbers of each batch, and both do so alike.
bool picks_alike(const Rewrite& r, const Node& a, const Node& b, const Shape& x) {
  const OutputInfo &first = r.graph.info(a.inputs[1]), &second = r.graph.info(b.inputs[1]);
  const Tensor *axis = r.graph.known_value(a.inputs[2]), *other = r.graph.known_value(b.inputs[2]);
  if (!axis || !other || !x.is_static() || !first.shape.is_static() || first.shape != second.shape ||
      first.dtype != second.dtype || !together(a, b))
    return false;
  const std::int64_t rank = x.rank();
  const auto is_of_rows = [&](const Node& node, const Tensor& of) {
    const std::int64_t at = tensor_to_int64s(of)[0];
    return (at < 0 ? at + rank : at) == rank - 2 && node.attrs.get("batch_dims", std::int64_t{0}) == rank - 2;
  };
  return first.shape.rank() == rank - 1 && is_of_rows(a, *axis) && is_of_rows(b, *other);
}

bool joins_slices(const Rewrite& r, const Match& match) {
  const Node& join = r.node(match[0]);
  const Tensor* axis = r.graph.known_value(join.inputs.back());
  const std::int64_t rank = join.outputs[0].shape.rank();
  if (!axis || join.inputs.size() < 3 || !join.outputs[0].shape.is_static() || !is_plain(r.plan, join))
    return false;
  const std::int64_t at = tensor_to_int64s(*axis)[0];
  const Node& first = r.node(join.inputs[0].node);
  if ((at < 0 ? at + rank : at) != rank - 1) return false;
  return std::all_of(join.inputs.begin(), join.inputs.end() - 1, [&](ValueRef input) {
    const Node& node = r.node(input.node);
    return slices().names(node) && is_inner(r.plan, node.id) && !r.users.is_named(node.id) &&
           r.users.readers(node.id) == std::vector<NodeId>{join.id} && node.inputs[0] == first.inputs[0] &&
           picks_alike(r, first, node, r.graph.info(node.inputs[0]).shape) && together(node, join);
  });
}

void build_join(Rewrite& r, const Match& match) {
  const Node join = r.node(match[0]);
  std::vector<ValueRef> lists;
  for (std::size_t i = 0; i + 1 < join.inputs.size(); ++i)
    lists.push_back(r.node(join.inputs[i].node).inputs[1]);
  const Node first = r.node(join.inputs[0].node);
  const ValueRef gathered =
      add(r, join, "braid.BatchGather", {first.inputs[0], packed(r, join, lists), first.inputs[2]},
          first.attrs, "/slices");
  const NodeId made =
      replace(r.plan, match[0], reshape_node(r.graph, join, gathered, join.outputs[0].shape), "/rows");
  for (std::size_t i = 0; i + 1 < join.inputs.size(); ++i) take_place(r.plan, join.inputs[i].node, made);
}

/// Summands that are gradients of all parts of one split, in the order of the parts.
std::optional<std::vector<ValueRef>> find_gradients_of_parts(const Rewrite& r, const Match& match) {
  static const Pattern split{"braid.SplitLike"};
  const Node& sum = r.node(match[0]);
  const auto part_of = [&](ValueRef input) -> std::optional<ValueRef> {
    const Node& node = r.node(input.node);
    if (!slices_grad().names(node) || !r.is_for_one(node.id) || r.users.is_named(node.id) ||
        !together(node, sum) || !split.names(r.node(node.inputs[0].node)))
      return std::nullopt;
    return node.inputs[0];
  };
  if (!is_plain(r.plan, sum) || !sum.outputs[0].shape.is_static()) return std::nullopt;
  for (const ValueRef input : sum.inputs) {
    const auto part = part_of(input);
    if (!part || part->output != 0) continue;
    const Node &apart = r.node(part->node), &first = r.node(input.node);
    std::vector<ValueRef> found(apart.outputs.size(), ValueRef{kNoNode, 0});
    for (const ValueRef other : sum.inputs)
      if (const auto at = part_of(other);
          at && at->node == part->node && picks_alike(r, first, r.node(other.node), sum.outputs[0].shape))
        found[static_cast<std::size_t>(at->output)] = other;
    const Tensor* axis = r.graph.known_value(apart.inputs[0]);
    const Shape& dy = r.graph.info(apart.inputs[1]).shape;
    const bool all = std::none_of(found.begin(), found.end(), [](ValueRef v) { return v.node == kNoNode; });
    if (!all || found.size() < 2 || !axis || !dy.is_static() || !is_inner(r.plan, apart.id)) continue;
    const std::int64_t at = tensor_to_int64s(*axis)[0];
    const bool is_last = (at < 0 ? at + dy.rank() : at) == dy.rank() - 1;
    const auto width = sum.outputs[0].shape[sum.outputs[0].shape.rank() - 1];
    if (is_last && dy[dy.rank() - 1] == width * std::ssize(found)) return found;
  }
  return std::nullopt;
}

void build_sum(Rewrite& r, const Match& match, const std::vector<ValueRef>& parts) {
  Node sum = r.node(match[0]);
  const Node first = r.node(parts[0].node);
  const ValueRef dy = r.node(first.inputs[0].node).inputs[1];
  const Shape whole = r.graph.info(dy).shape;
  std::vector<std::int64_t> dims(whole.dims().begin(), whole.dims().end() - 1);
  dims.push_back(std::ssize(parts));
  dims.push_back(whole[whole.rank() - 1] / std::ssize(parts));
  std::vector<ValueRef> lists;
  for (const ValueRef part : parts) lists.push_back(r.node(part.node).inputs[1]);
  const ValueRef apart{
      add_node(r.graph, reshape_node(r.graph, sum, dy, Shape(std::move(dims))), sum.name + "/slices"), 0};
  // The first one becomes the whole, as what gives its shape may be there no more.
  const ValueRef numbers = packed(r, sum, lists), made = parts[0];
  Node& whole_sum = r.graph.mutable_node(made.node);
  whole_sum.inputs[0] = apart;
  whole_sum.inputs[1] = numbers;
  for (const ValueRef part : parts)
    if (part != made) take_place(r.plan, part.node, made.node);
  std::erase_if(sum.inputs,
                [&](ValueRef input) { return std::find(parts.begin(), parts.end(), input) != parts.end(); });
  sum.inputs.push_back(made);
  if (sum.inputs.size() == 1) return replace_with(r.plan, match[0], made);
  sum.attrs.set("N", std::ssize(sum.inputs));
  replace(r.plan, match[0], std::move(sum), "/sum");
}

}  // namespace

void join_gathers(Plan& plan) {
  batch_gathers(plan);
  run_rules(plan, {.rules = {{"slices", {"ConcatV2"}, joins_slices, build_join},
                             {"gradients", {"AddN"}, find_gradients_of_parts, build_sum}},
                   .text = [](const std::vector<int>& applied) {
                     return std::to_string(applied[0]) + " joins of slices are one gather, " +
                            std::to_string(applied[1]) + " sums of their gradients one sum";
                   }});
}

}  // namespace braid
