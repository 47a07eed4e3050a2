// Views that rules put between nodes. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <utility>

#include "engine/ir/op.h"
#include "engine/rewrite/rewrite.h"

namespace braid {

/// The shape as a constant, where `like` is.
inline ValueRef add_sizes(Graph& graph, const Node& like, const Shape& shape) {
  Node sizes = like;
  sizes.op = &OpRegistry::global().require("Const");
  sizes.inputs.clear();
  sizes.attrs = {
      {"dtype", DType::Int64},
      {"value", Tensor::from<std::int64_t>({static_cast<std::int64_t>(shape.rank())}, shape.dims())}};
  return {add_node(graph, std::move(sizes), like.name + "/sizes"), 0};
}

/// A node, to be added, that sees `value` in this shape, where `like` is. REQUIRES: so many elements.
inline Node reshape_node(Graph& graph, const Node& like, ValueRef value, const Shape& shape) {
  Node node = like;
  node.op = &OpRegistry::global().require("Reshape");
  node.attrs = {};
  node.inputs = {value, add_sizes(graph, like, shape)};
  return node;
}

}  // namespace braid
