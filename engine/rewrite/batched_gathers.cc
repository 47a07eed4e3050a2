// Gathers whose first coordinates count the axes of the result:
//
//   GatherNd(x, [i, j, ..., index[i, j, ...]])        -> BatchGather(x, index), as many batch axes as counted
//   ScatterNd([i, j, ..., index[i, j, ...]], dy, ...) -> BatchGatherGrad(dy, index), the gradient of such one
//
// PyTorch's x[torch.arange(rows)[:, None], index] is exported so. The coordinates are joined, and negative
// ones may be counted from the end. A batched gather reads the index alone, and its gradient need not sort
// places of the whole value.
#include "engine/rewrite/batched_gathers.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/ir/tensor.h"
#include "engine/rewrite/reshape_node.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

const Pattern& gathers() {
  static const Pattern pattern{"GatherNd"};
  return pattern;
}

/// The numbers within rows of a gather, and how many axes are rows.
struct WithinRows {
  ValueRef index;      // of the places, or of them and 1
  bool wraps = false;  // negative ones count from the end
  std::int64_t batch = 0;
};

bool is_zero(const Rewrite& r, ValueRef value) {
  const Tensor* known = r.graph.known_value(value);
  return known && known->elements() == 1 && tensor_to_int64s(*known)[0] == 0;
}

/// What SelectV2(Less(c, 0), c + sizes, c) counts from the end; the value itself where it is no such choice.
std::pair<ValueRef, bool> unwrapped(const Rewrite& r, ValueRef places) {
  static const Pattern choice{"SelectV2"}, less{"Less"}, sum{"AddV2"};
  const Node& node = r.node(places.node);
  if (!choice.names(node) || !is_plain(r.plan, node)) return {places, false};
  const Node &is_negative = r.node(node.inputs[0].node), &from_end = r.node(node.inputs[1].node);
  const ValueRef c = node.inputs[2];
  const bool wraps = less.names(is_negative) && is_plain(r.plan, is_negative) && is_negative.inputs[0] == c &&
                     is_zero(r, is_negative.inputs[1]) && sum.names(from_end) && is_plain(r.plan, from_end) &&
                     from_end.inputs[0] == c;
  return {wraps ? c : places, wraps};
}

/// Behind views of the same elements.
ValueRef behind_views(const Rewrite& r, ValueRef value, const Shape& wanted) {
  for (;;) {
    const Node& node = r.node(value.node);
    if (r.graph.info(value).shape == wanted || node.op->views.empty() || node.inputs.empty() ||
        !is_plain(r.plan, node) || r.graph.info(node.inputs[0]).shape.elements() != wanted.elements())
      return value;
    value = node.inputs[0];
  }
}

/// Whether the elements count the places along `axis` of the shape.
bool counts(const Rewrite& r, ValueRef part, const Shape& all, int axis) {
  static const Pattern repeats{"BroadcastTo"};
  ValueRef value = behind_views(r, part, all);
  if (const Node& node = r.node(value.node); !r.graph.known_value(value) && repeats.names(node) &&
                                             is_plain(r.plan, node) && r.graph.info(value).shape == all)
    value = node.inputs[0];
  const Tensor* known = r.graph.known_value(value);
  const Shape& own = r.graph.info(value).shape;
  if (!known || own.rank() > all.rank()) return false;
  const int missing = all.rank() - own.rank();
  std::int64_t inner = 1;
  for (int a = axis + 1; a < all.rank(); ++a) inner *= a < missing ? 1 : own[a - missing];
  for (int a = 0; a < own.rank(); ++a)
    if (own[a] != 1 && own[a] != all[a + missing]) return false;
  const std::int64_t length = axis < missing ? 1 : own[axis - missing];
  if (length != all[axis]) return false;
  const std::vector<std::int64_t> numbers = tensor_to_int64s(*known);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] != static_cast<std::int64_t>(i) / inner % length) return false;
  return true;
}

/// The coordinates of `places`, which are joined along the last axis.
std::vector<ValueRef> coordinates(const Rewrite& r, ValueRef places) {
  static const Pattern concat{"ConcatV2"}, pack{"Pack"};
  const Node& join = r.node(places.node);
  const Shape& shape = r.graph.info(places).shape;
  if ((!concat.names(join) && !pack.names(join)) || !is_plain(r.plan, join)) return {};
  std::vector<ValueRef> parts = join.inputs;
  std::int64_t axis = join.attrs.get<std::int64_t>("axis", 0);
  if (concat.names(join)) {
    const Tensor* known = r.graph.known_value(parts.back());
    if (!known) return {};
    axis = tensor_to_int64s(*known)[0];
    parts.pop_back();
  }
  const bool is_last = (axis < 0 ? axis + shape.rank() : axis) == shape.rank() - 1;
  return is_last && std::ssize(parts) == shape[shape.rank() - 1] ? parts : std::vector<ValueRef>{};
}

std::optional<WithinRows> within_rows(const Rewrite& r, ValueRef places, const Shape& x) {
  const auto [joined, wraps] = unwrapped(r, places);
  const Shape& shape = r.graph.info(joined).shape;
  if (!shape.is_static() || !x.is_static() || shape.rank() < 2 || shape.elements() == 0) return std::nullopt;
  const std::vector<ValueRef> parts = coordinates(r, joined);
  const Shape all(std::vector<std::int64_t>(shape.dims().begin(), shape.dims().end() - 1));
  const auto batch = static_cast<int>(parts.size()) - 1;
  if (batch < 1 || batch > all.rank() || batch >= x.rank()) return std::nullopt;
  for (int axis = 0; axis < batch; ++axis)
    if (all[axis] != x[axis] || !counts(r, parts[static_cast<std::size_t>(axis)], all, axis))
      return std::nullopt;
  return WithinRows{parts.back(), wraps, batch};
}

Node node_like(const Node& like, const char* op, std::vector<ValueRef> inputs, AttrMap attrs = {}) {
  Node node = like;
  node.op = &OpRegistry::global().require(op);
  node.inputs = std::move(inputs);
  node.attrs = std::move(attrs);
  return node;
}

ValueRef add(Rewrite& r, const Node& like, const char* op, std::vector<ValueRef> inputs, const char* suffix,
             AttrMap attrs = {}) {
  return {add_node(r.graph, node_like(like, op, std::move(inputs), std::move(attrs)), like.name + suffix), 0};
}

ValueRef number(Rewrite& r, const Node& like, std::int64_t value, DType dtype) {
  const Tensor tensor = dtype == DType::Int32 ? Tensor::scalar(static_cast<std::int32_t>(value))
                                              : Tensor::scalar<std::int64_t>(value);
  return add(r, like, "Const", {}, "/number", {{"dtype", dtype}, {"value", tensor}});
}

/// The numbers within rows, [places], from the start.
ValueRef index_of(Rewrite& r, const Node& like, const WithinRows& found, const Shape& places,
                  std::int64_t rows) {
  const Shape all(std::vector<std::int64_t>(places.dims().begin(), places.dims().end() - 1));
  ValueRef index = behind_views(r, found.index, all);
  if (r.graph.info(index).shape != all)
    index = {add_node(r.graph, reshape_node(r.graph, like, index, all), like.name + "/index"), 0};
  if (!found.wraps) return index;
  const DType dtype = r.graph.info(index).dtype;
  const ValueRef is_negative = add(r, like, "Less", {index, number(r, like, 0, dtype)}, "/negative");
  const ValueRef from_end = add(r, like, "AddV2", {index, number(r, like, rows, dtype)}, "/from_end");
  return add(r, like, "SelectV2", {is_negative, from_end, index}, "/index");
}

std::optional<WithinRows> find_gather(const Rewrite& r, const Match& match) {
  const Node& node = r.node(match[0]);
  if (!is_plain(r.plan, node)) return std::nullopt;
  return within_rows(r, node.inputs[1], r.graph.info(node.inputs[0]).shape);
}

void build_gather(Rewrite& r, const Match& match, const WithinRows& found) {
  const Node node = r.node(match[0]);
  const std::int64_t rows = r.graph.info(node.inputs[0]).shape[static_cast<int>(found.batch)];
  const ValueRef index = index_of(r, node, found, r.graph.info(node.inputs[1]).shape, rows);
  const ValueRef axis = number(r, node, found.batch, DType::Int32);
  replace(r.plan, match[0],
          node_like(node, "braid.BatchGather", {node.inputs[0], index, axis}, {{"batch_dims", found.batch}}),
          "/within_rows");
}

/// What a sum needs besides: the value whose gradient it is, for its shape.
struct SumWithinRows {
  WithinRows rows;
  ValueRef like;
};

std::optional<SumWithinRows> find_sum_within_rows(const Rewrite& r, const Match& match) {
  const Node& node = r.node(match[0]);
  const Shape& out = node.outputs[0].shape;
  if (!is_plain(r.plan, node)) return std::nullopt;
  const auto rows = within_rows(r, node.inputs[0], out);
  if (!rows) return std::nullopt;
  for (const NodeId user : r.users.of(node.inputs[0].node)) {
    const Node& gather = r.node(user);
    if (gathers().names(gather) && gather.inputs[1] == node.inputs[0] &&
        r.graph.info(gather.inputs[0]).shape == out)
      return SumWithinRows{*rows, gather.inputs[0]};
  }
  return std::nullopt;
}

void build_sum_within_rows(Rewrite& r, const Match& match, const SumWithinRows& found) {
  const Node node = r.node(match[0]);
  const std::int64_t rows = node.outputs[0].shape[static_cast<int>(found.rows.batch)];
  const ValueRef index = index_of(r, node, found.rows, r.graph.info(node.inputs[0]).shape, rows);
  const ValueRef axis = number(r, node, found.rows.batch, DType::Int32);
  replace(r.plan, match[0],
          node_like(node, "braid.BatchGatherGrad", {node.inputs[1], index, axis, found.like},
                    {{"batch_dims", found.rows.batch}}),
          "/within_rows");
}

}  // namespace

void batch_gathers(Plan& plan) {
  // Sums first, as they look for the gathers.
  run_rules(plan, {.rules = {{"sum", {"ScatterNd"}, find_sum_within_rows, build_sum_within_rows}},
                   .text = [](const std::vector<int>& applied) {
                     return std::to_string(applied[0]) + " sums by coordinates are sums within rows";
                   }});
  run_rules(plan, {.rules = {{"gather", gathers(), find_gather, build_gather}},
                   .text = [](const std::vector<int>& applied) {
                     return std::to_string(applied[0]) + " gathers by coordinates are gathers within rows";
                   }});
}

}  // namespace braid
