#include "engine/rewrite/image_values.h"

#include <algorithm>

#include "engine/rewrite/rule.h"

namespace braid {

Order channels_to_front(int rank) {
  if (rank < 3 || rank > 5) return {};
  Order order{0, rank - 1};
  for (int axis = 1; axis < rank - 1; ++axis) order.push_back(axis);
  return order;
}

Order inverse(const Order& order) {
  Order result(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    result[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  return result;
}

Shape permuted(const Shape& shape, const Order& order) {
  std::vector<std::int64_t> dims;
  for (const int axis : order) dims.push_back(shape[axis]);
  return Shape(std::move(dims));
}

std::vector<std::int64_t> longer_axes(const Shape& shape) {
  std::vector<std::int64_t> dims;
  for (const std::int64_t size : shape.dims())
    if (size != 1) dims.push_back(size);
  return dims;
}

bool keeps_elements(const Shape& shape, const Order& order) {
  int last = -1;
  for (const int axis : order) {
    if (shape[axis] == 1) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

std::int64_t axis_behind(std::int64_t axis, int rank) {
  if (axis < 0) axis += rank;
  return channels_to_front(rank)[static_cast<std::size_t>(axis)];
}

std::optional<std::vector<std::int64_t>> ImageValues::known(ValueRef value) const {
  const Tensor* const tensor = graph_.known_value(value);
  if (!tensor || (tensor->dtype() != DType::Int32 && tensor->dtype() != DType::Int64)) return std::nullopt;
  return tensor_to_int64s(*tensor);
}

std::optional<Order> ImageValues::order_of(const Node& node) const {
  static const Pattern transpose{"Transpose"};
  if (!transpose.names(node) || !is_plain(plan_, node)) return std::nullopt;
  const auto axes = known(node.inputs[1]);
  if (!axes || static_cast<int>(axes->size()) != node.outputs[0].shape.rank()) return std::nullopt;
  return Order(axes->begin(), axes->end());
}

std::optional<ValueRef> ImageValues::behind(ValueRef value) const {
  const Node& node = graph_.node(value.node);
  const std::optional<Order> order = order_of(node);
  if (!order || *order != channels_to_front(static_cast<int>(order->size()))) return std::nullopt;
  if (order->size() == 3 && !made_.contains(value.node)) return std::nullopt;
  return node.inputs[0];
}

NodeId ImageValues::add(Node node, const std::string& name) {
  return add_node(graph_, std::move(node), name);
}

ValueRef ImageValues::add(const Node& like, const char* op, std::vector<ValueRef> inputs, AttrMap attrs) {
  Node node = like;
  node.op = &OpRegistry::global().require(op);
  node.inputs = std::move(inputs);
  node.attrs = std::move(attrs);
  return {add(std::move(node), like.name + "/" + op), 0};
}

ValueRef ImageValues::constant(const Node& like, Tensor value) {
  const DType dtype = value.dtype();
  return add(like, "Const", {}, {{"dtype", dtype}, {"value", std::move(value)}});
}

ValueRef ImageValues::ints(const Node& like, const std::vector<std::int64_t>& values) {
  Tensor tensor(DType::Int32, Shape{static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i)
    tensor.data<std::int32_t>()[i] = static_cast<std::int32_t>(values[i]);
  return constant(like, std::move(tensor));
}

ValueRef ImageValues::int_scalar(const Node& like, std::int64_t value) {
  return constant(like, Tensor::scalar(static_cast<std::int32_t>(value)));
}

ValueRef ImageValues::reshape(const Node& like, ValueRef value, const Shape& to) {
  if (shape(value) == to) return value;
  const auto rank = static_cast<std::int64_t>(to.rank());
  return add(like, "Reshape", {value, constant(like, Tensor::from<std::int64_t>({rank}, to.dims()))}, {});
}

ValueRef ImageValues::transpose(const Node& like, ValueRef value, Order order) {
  if (const std::optional<Order> before = order_of(graph_.node(value.node))) {
    for (int& axis : order) axis = (*before)[static_cast<std::size_t>(axis)];
    value = graph_.node(value.node).inputs[0];
  }
  if (std::is_sorted(order.begin(), order.end())) return value;
  if (keeps_elements(shape(value), order)) return reshape(like, value, permuted(shape(value), order));
  ValueRef& made = transposed_[{value, order}];
  if (made.node == kNoNode || !together(graph_.node(made.node), like)) {
    made = add(like, "Transpose", {value, ints(like, {order.begin(), order.end()})}, {});
    made_.insert(made.node);
  }
  return made;
}

ValueRef ImageValues::to_front(const Node& like, ValueRef value) {
  return transpose(like, value, channels_to_front(shape(value).rank()));
}

ValueRef ImageValues::to_end(const Node& like, ValueRef value) {
  return transpose(like, value, inverse(channels_to_front(shape(value).rank())));
}

bool ImageValues::put(const Node& old, const std::vector<ValueRef>& values) {
  if (values.size() == 1) {
    replace_with(plan_, old.id, values[0]);
    return true;
  }
  take_place(plan_, old.id, values[0].node);
  for (std::size_t k = 0; k < values.size(); ++k)
    replace_value(plan_, {old.id, static_cast<int>(k)}, values[k]);
  return true;
}

}  // namespace braid
