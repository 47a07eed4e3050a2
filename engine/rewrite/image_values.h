// Values of images and their transpositions, for the pass that puts channels last. T moves channels to the
// front: axes [n, h, w, c] become [n, c, h, w], [n, t, c] becomes [n, c, t], and volumes have one more.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/ir/op.h"
#include "engine/rewrite/rewrite.h"

namespace braid {

using Order = std::vector<int>;  // of a Transpose: axis i of the result is axis order[i] of what it reads

/// T's order for images with `rank` - 2 axes, one to three; empty for other ranks.
Order channels_to_front(int rank);
Order inverse(const Order& order);
Shape permuted(const Shape& shape, const Order& order);
/// The sizes of the axes that are longer than 1.
std::vector<std::int64_t> longer_axes(const Shape& shape);
/// Whether a Transpose by `order` moves axes of one element only, so that the elements stay where they are.
bool keeps_elements(const Shape& shape, const Order& order);
/// Where axis `axis` of T(x), of rank `rank`, lies in x.
std::int64_t axis_behind(std::int64_t axis, int rank);

class ImageValues {
 public:
  explicit ImageValues(Plan& plan) : plan_(plan), graph_(plan.program.graph) {}

  const Shape& shape(ValueRef value) const { return graph_.info(value).shape; }
  /// What is known of a value of integers.
  std::optional<std::vector<std::int64_t>> known(ValueRef value) const;
  /// The order of a Transpose, if the node is one.
  std::optional<Order> order_of(const Node& node) const;
  /// What T was applied to, if `value` is T of something. Swaps of two axes that this class has not made, and
  /// does not count, are none: they are common in what is no image.
  std::optional<ValueRef> behind(ValueRef value) const;

  /// From now on this swap of two axes counts as T.
  void count_as_front(NodeId swap) { made_.insert(swap); }

  /// New nodes, on the stream and device of `like`.
  NodeId add(Node node, const std::string& name);
  ValueRef add(const Node& like, const char* op, std::vector<ValueRef> inputs, AttrMap attrs);
  ValueRef ints(const Node& like, const std::vector<std::int64_t>& values);  // int32
  ValueRef int_scalar(const Node& like, std::int64_t value);                 // int32
  ValueRef constant(const Node& like, Tensor value);
  ValueRef reshape(const Node& like, ValueRef value, const Shape& to);
  /// Transpose(value, order), by no more nodes than it takes.
  ValueRef transpose(const Node& like, ValueRef value, Order order);
  ValueRef to_front(const Node& like, ValueRef value);  // T
  ValueRef to_end(const Node& like, ValueRef value);    // its inverse

  /// Puts `values`, those of other nodes, in the place of a node's; gives true.
  bool put(const Node& old, const std::vector<ValueRef>& values);
  bool put(const Node& old, ValueRef value) { return put(old, std::vector<ValueRef>{value}); }

 private:
  Plan& plan_;
  Graph& graph_;
  std::map<std::pair<ValueRef, Order>, ValueRef> transposed_;
  std::set<NodeId> made_;  // Transposes
};

}  // namespace braid
