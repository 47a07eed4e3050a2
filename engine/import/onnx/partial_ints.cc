// What is known of vectors of sizes of which some follow from sizes that are not known: exporters write
// shapes as Concat(Slice(Shape(x)), 4, -1). Element by element, through the nodes that such vectors are made
// with.
#include <algorithm>

#include "engine/import/onnx/builder.h"
#include "engine/ir/op.h"

namespace braid::onnx {
namespace {

constexpr int kMaxDepth = 32;

PartialInts partial(const Graph& graph, ValueRef value, int depth);

/// a and b element by element, where one may be a scalar.
template <class Combine>
PartialInts combined(const PartialInts& a, const PartialInts& b, Combine combine) {
  if (!a || !b || a->empty() || b->empty()) return {};
  if (a->size() != b->size() && a->size() != 1 && b->size() != 1) return {};
  std::vector<std::optional<std::int64_t>> result(std::max(a->size(), b->size()));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto left = a->at(a->size() == 1 ? 0 : i), right = b->at(b->size() == 1 ? 0 : i);
    if (left && right) result[i] = combine(*left, *right);
  }
  return result;
}

std::optional<std::int64_t> single(const Graph& graph, ValueRef value) {
  const Tensor* known = graph.known_value(value);
  if (!known || known->elements() != 1) return {};
  return tensor_to_int64s(*known).front();
}

/// Of a vector, by constants, without strides.
PartialInts strided_slice(const Graph& graph, const Node& node, const PartialInts& x) {
  const auto begin = single(graph, node.inputs[1]), end = single(graph, node.inputs[2]),
             step = single(graph, node.inputs[3]);
  if (!x || !begin || !end || step != 1) return {};
  const auto size = static_cast<std::int64_t>(x->size());
  const auto place = [&](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const bool from_start = (node.attrs.get<std::int64_t>("begin_mask", 0) & 1) != 0;
  const bool to_end = (node.attrs.get<std::int64_t>("end_mask", 0) & 1) != 0;
  const bool shrinks = (node.attrs.get<std::int64_t>("shrink_axis_mask", 0) & 1) != 0;
  const std::int64_t first = from_start ? 0 : place(*begin);
  const std::int64_t last = shrinks ? first + 1 : to_end ? size : place(*end);
  if (first > last || last > size) return std::vector<std::optional<std::int64_t>>{};
  return std::vector<std::optional<std::int64_t>>(x->begin() + first, x->begin() + last);
}

PartialInts joined(const Graph& graph, const Node& node, std::size_t count, int depth) {
  std::vector<std::optional<std::int64_t>> all;
  for (std::size_t i = 0; i < count; ++i) {
    const PartialInts part = partial(graph, node.inputs[i], depth);
    if (!part) return {};
    all.insert(all.end(), part->begin(), part->end());
  }
  return all;
}

PartialInts gathered(const Graph& graph, const Node& node, const PartialInts& x) {
  const Tensor* indices = graph.known_value(node.inputs[1]);
  if (!x || !indices) return {};
  std::vector<std::optional<std::int64_t>> result;
  for (const std::int64_t index : tensor_to_int64s(*indices)) {
    if (index < 0 || index >= static_cast<std::int64_t>(x->size())) return {};
    result.push_back((*x)[static_cast<std::size_t>(index)]);
  }
  return result;
}

PartialInts partial(const Graph& graph, ValueRef value, int depth) {
  const OutputInfo& info = graph.info(value);
  if (!is_integer(info.dtype) || !info.shape.has_rank() || info.shape.rank() > 1 || depth == kMaxDepth)
    return {};
  if (const Tensor* known = graph.known_value(value)) {
    const std::vector<std::int64_t> values = tensor_to_int64s(*known);
    return std::vector<std::optional<std::int64_t>>(values.begin(), values.end());
  }
  const Node& node = graph.node(value.node);
  const std::string& op = node.op->name;
  const auto input = [&](std::size_t i) { return partial(graph, node.inputs[i], depth + 1); };
  if (op == "Shape") {
    const Shape& shape = graph.info(node.inputs[0]).shape;
    if (!shape.has_rank()) return {};
    std::vector<std::optional<std::int64_t>> sizes;
    for (const std::int64_t dim : shape.dims()) sizes.push_back(dim < 0 ? std::nullopt : std::optional(dim));
    return sizes;
  }
  if (op == "Cast" || op == "Identity" || op == "Reshape" || op == "ExpandDims" || op == "Squeeze")
    return input(0);
  if (op == "Pack") return joined(graph, node, node.inputs.size(), depth + 1);
  if (op == "ConcatV2") return joined(graph, node, node.inputs.size() - 1, depth + 1);
  if (op == "GatherV2") return gathered(graph, node, input(0));
  if (op == "StridedSlice") return strided_slice(graph, node, input(0));
  if (op == "Mul") return combined(input(0), input(1), checked_times);
  if (op == "AddV2" || op == "Add") return combined(input(0), input(1), checked_plus);
  if (op == "Sub") return combined(input(0), input(1), checked_minus);
  return {};
}

}  // namespace

PartialInts partial_ints(Val x) {
  const Builder& builder = x.made_by();
  return partial(builder.graph(), {builder.id(x.node), x.output}, 0);
}

}  // namespace braid::onnx
