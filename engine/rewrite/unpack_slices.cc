// Slices of one place each, x[:, 0], x[:, 1], ..., as one Unpack, and the sum of their gradients, each as
// large as x and zero but for its place, as one Pack:
//
//   StridedSlice(x) or GatherV2(x, i, axis), of at least half of the places of an axis -> Unpack(x)
//   AddN(StridedSliceGrad(dy0), GatherGrad(dy1), ..., rest...) of all places            -> Pack(dy...), +
//   rest
//
// A slice may keep the axis, with one place; then it is a view of what is unpacked. So are x[..., 0::2] and
// x[..., 1::2], as rotary positions have them: places of an axis that is split into pairs.
// So programs take the columns of a batch apart that come from other frameworks.
#include <fmt/format.h>

#include <compare>
#include <map>
#include <optional>
#include <utility>

#include "engine/graph/passes.h"
#include "engine/ops/array/strided_range.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

const Pattern& slice() {
  static const Pattern pattern{"StridedSlice"};
  return pattern;
}
const Pattern& slice_grad() {
  static const Pattern pattern{"StridedSliceGrad"};
  return pattern;
}
const Pattern& gather_grad() {
  static const Pattern pattern{"braid.GatherGrad"};
  return pattern;
}
const Pattern& gather_of_place() {
  static const Pattern pattern{"GatherV2"};
  return pattern;
}

/// One of `of` places of an axis, whose other axes are taken whole: of all its places, or, where these are
/// more, of each run of `of` that it is split into.
struct Place {
  int axis = 0;
  std::int64_t at = 0, of = 0;
};

/// The shape in which a place is one of an axis, and that axis.
std::pair<Shape, int> split_at(const Shape& whole, int axis, std::int64_t of) {
  if (whole[axis] == of) return {whole, axis};
  std::vector<std::int64_t> dims(whole.dims().begin(), whole.dims().end());
  dims[static_cast<std::size_t>(axis)] /= of;
  dims.insert(dims.begin() + axis + 1, of);
  return {Shape(std::move(dims)), axis + 1};
}

std::optional<std::vector<std::int64_t>> known_ints(const Graph& graph, ValueRef value) {
  const Tensor* const known = graph.known_value(value);
  if (!known) return std::nullopt;
  return tensor_to_int64s(*known);
}

/// What a StridedSlice of `whole`, or its gradient, takes.
std::optional<Place> sliced_place(const Graph& graph, const Node& node, const Shape& whole) {
  const SliceValues values{known_ints(graph, node.inputs[1]), known_ints(graph, node.inputs[2]),
                           known_ints(graph, node.inputs[3])};
  if (!values.begin || !values.end || !values.strides) return std::nullopt;
  bool fits = true;
  const StridedRange range =
      resolve_strided_range(whole, std::ssize(*values.begin), values, SliceMasks(node.attrs),
                            [&](const std::string&) { fits = false; });
  std::optional<Place> place;
  const bool keeps_axis = range.output.rank() == whole.rank();
  if (!fits || (!keeps_axis && range.output.rank() != whole.rank() - 1)) return std::nullopt;
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const AxisRange& taken = range.axes[static_cast<std::size_t>(axis)];
    const bool may_be_whole = keeps_axis || taken.size != 1;
    if (taken.size == whole[axis] && taken.begin == 0 && taken.stride == 1 && may_be_whole) continue;
    const bool is_of_runs = keeps_axis && taken.stride > 1 && taken.begin < taken.stride &&
                            taken.size * taken.stride == whole[axis];
    if (place || (taken.size != 1 && !is_of_runs)) return std::nullopt;
    place = {axis, taken.begin, taken.size == 1 ? whole[axis] : taken.stride};
  }
  return place;
}

/// What a gather of one slice takes, or its gradient.
std::optional<Place> gathered_place(const Graph& graph, const Node& node, const Shape& whole) {
  const Tensor* const index = graph.known_value(node.inputs[1]);
  const auto axis = known_ints(graph, node.inputs[gather_grad().names(node) ? 3 : 2]);
  if (!index || index->shape().rank() != 0 || !axis || node.attrs.get<std::int64_t>("batch_dims", 0) != 0)
    return std::nullopt;
  const int at = static_cast<int>((*axis)[0] < 0 ? (*axis)[0] + whole.rank() : (*axis)[0]);
  const std::int64_t place = tensor_to_int64s(*index)[0];
  if (place < 0 || place >= whole[at]) return std::nullopt;
  return Place{at, place, whole[at]};
}

// ---------------------------------------------------------------------------------------------- slices

using Slices = std::map<std::int64_t, std::vector<NodeId>>;  // nodes by their place

/// What is sliced: places of one axis.
struct SlicedValue {
  ValueRef value;
  int axis = 0;
  std::int64_t places = 0;
  friend auto operator<=>(const SlicedValue&, const SlicedValue&) = default;
};

std::optional<Place> place_of(const Graph& graph, const Node& node) {
  if (!slice().names(node) && !gather_of_place().names(node)) return std::nullopt;
  const OutputInfo& whole = graph.info(node.inputs[0]);
  if (whole.dtype == DType::Resource || !whole.shape.is_static() || whole.shape.rank() < 1)
    return std::nullopt;
  return slice().names(node) ? sliced_place(graph, node, whole.shape)
                             : gathered_place(graph, node, whole.shape);
}

std::map<SlicedValue, Slices> find_slices(const Plan& plan) {
  const Graph& graph = plan.program.graph;
  std::map<SlicedValue, Slices> found;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (!is_plain(plan, node)) continue;
    if (const auto place = place_of(graph, node))
      found[{node.inputs[0], place->axis, place->of}][place->at].push_back(id);
  }
  return found;
}

/// Whether one node may do what they all do.
bool may_be_one(const Graph& graph, const Slices& slices, std::int64_t places) {
  if (std::ssize(slices) < 2 || 2 * std::ssize(slices) < places) return false;
  const Node& first = graph.node(slices.begin()->second.front());
  for (const auto& [place, nodes] : slices)
    for (const NodeId id : nodes)
      if (!together(graph.node(id), first)) return false;
  return true;
}

/// The value in another shape of as many elements.
ValueRef reshaped(Graph& graph, Node like, ValueRef value, Shape shape) {
  if (graph.info(value).shape == shape) return value;
  const std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  Node sizes;
  sizes.op = &OpRegistry::global().require("Const");
  sizes.attrs = {{"dtype", DType::Int64},
                 {"value", Tensor::from<std::int64_t>(Shape{std::ssize(dims)}, dims)}};
  sizes.device = like.device;
  Node view;
  view.op = &OpRegistry::global().require("Reshape");
  view.inputs = {value, {add_node(graph, std::move(sizes), like.name + "/sizes"), 0}};
  view.stream = like.stream;
  view.device = like.device;
  view.colocate_with = like.colocate_with;
  return {add_node(graph, std::move(view), like.name + "/place"), 0};
}

void put_unpack(Plan& plan, const SlicedValue& of, const Slices& slices) {
  Graph& graph = plan.program.graph;
  const Node first = graph.node(slices.begin()->second.front());
  const auto [shape, axis] = split_at(graph.info(of.value).shape, of.axis, of.places);
  Node made;
  made.op = &OpRegistry::global().require("Unpack");
  made.name = graph.unique_name(first.name + "/unpacked");
  made.inputs = {reshaped(graph, first, of.value, shape)};
  made.attrs = {{"num", of.places}, {"axis", static_cast<std::int64_t>(axis)}};
  made.stream = first.stream;
  made.device = first.device;
  made.colocate_with = first.colocate_with;
  const NodeId id = graph.add(std::move(made));
  for (const auto& [place, nodes] : slices)
    for (const NodeId old : nodes)
      replace_with(
          plan, old,
          reshaped(graph, graph.node(old), {id, static_cast<int>(place)}, graph.node(old).outputs[0].shape));
}

int unpack_all(Plan& plan) {
  int done = 0;
  for (const auto& [of, slices] : find_slices(plan)) {
    if (!may_be_one(plan.program.graph, slices, of.places)) continue;
    put_unpack(plan, of, slices);
    for (const auto& [place, nodes] : slices) done += static_cast<int>(nodes.size());
  }
  return done;
}

// ------------------------------------------------------------------------------------ their gradients

struct Gradients {
  int axis = 0;
  std::int64_t places = 0;
  std::vector<ValueRef> parts;      // by place
  std::vector<ValueRef> remaining;  // other summands
};

bool is_for_sum(const Rewrite& r, const Node& sum, const Node& gradient) {
  return (slice_grad().names(gradient) || gather_grad().names(gradient)) && r.is_for_one(gradient.id) &&
         !r.users.is_named(gradient.id) && together(gradient, sum) && gradient.outputs[0].shape.is_static();
}

std::optional<Gradients> find_gradients(const Rewrite& r, const Match& match) {
  const Node& sum = r.node(match[0]);
  if (!is_plain(r.plan, sum) || !sum.outputs[0].shape.is_static()) return std::nullopt;
  Gradients found;
  std::map<std::int64_t, ValueRef> parts;
  std::optional<Place> first;
  for (const ValueRef input : sum.inputs) {
    const Node& gradient = r.node(input.node);
    std::optional<Place> place;
    const bool is_gather = gather_grad().names(gradient);
    if (is_for_sum(r, sum, gradient))
      place = (is_gather ? gathered_place : sliced_place)(r.graph, gradient, gradient.outputs[0].shape);
    const bool fits = place && (!first || (first->axis == place->axis && first->of == place->of));
    if (fits && parts.emplace(place->at, gradient.inputs[is_gather ? 0 : 4]).second)
      first = place;
    else
      found.remaining.push_back(input);
  }
  if (!first || std::ssize(parts) < 2 || std::ssize(parts) != first->of) return std::nullopt;
  found.axis = first->axis;
  found.places = first->of;
  for (const auto& [at, part] : parts) found.parts.push_back(part);
  return found;
}

void pack_gradients(Rewrite& r, const Match& match, const Gradients& found) {
  const Node sum = r.node(match[0]);
  const Shape whole = sum.outputs[0].shape;
  const auto [split, axis] = split_at(whole, found.axis, found.places);
  std::vector<std::int64_t> dims(split.dims().begin(), split.dims().end());
  dims.erase(dims.begin() + axis);
  Node pack = sum;
  pack.op = &OpRegistry::global().require("Pack");
  pack.inputs.clear();
  for (const ValueRef part : found.parts) pack.inputs.push_back(reshaped(r.graph, sum, part, Shape(dims)));
  pack.attrs = {{"N", std::ssize(found.parts)}, {"axis", static_cast<std::int64_t>(axis)}};
  if (found.remaining.empty() && split == whole) {
    replace(r.plan, match[0], std::move(pack), "/packed");
    return;
  }
  const ValueRef packed{add_node(r.graph, std::move(pack), sum.name + "/packed"), 0};
  const ValueRef together = reshaped(r.graph, sum, packed, whole);
  if (found.remaining.empty()) return replace_with(r.plan, match[0], together);
  Node rest = sum;
  rest.inputs = found.remaining;
  rest.inputs.push_back(together);
  rest.attrs = {{"N", std::ssize(rest.inputs)}};
  replace(r.plan, match[0], std::move(rest), "/sum");
}

}  // namespace

void unpack_slices(Plan& plan) {
  if (const int slices = unpack_all(plan)) {
    prune(plan, true);
    plan.note(fmt::format("{} slices of one place are outputs of one node for each value", slices));
  }
  run_rules(plan, {.rules = {{"gradients", {"AddN"}, find_gradients, pack_gradients}},
                   .text = [](const std::vector<int>& applied) {
                     return fmt::format("{} sums of gradients of slices lie side by side", applied[0]);
                   }});
}

}  // namespace braid
