#include "engine/import/onnx/builder.h"

#include <fmt/format.h>

#include "base/error.h"
#include "engine/import/convert.h"
#include "engine/import/onnx/type_attrs.h"
#include "engine/import/place.h"
#include "engine/ir/op.h"

namespace braid::onnx {

namespace {

/// A translation that is unrolled must end before memory does.
constexpr std::size_t kMaxNodes = std::size_t{1} << 20;

ValueRef ref(const Val& v) {
  const Builder& builder = v.made_by();
  const ValueRef value{builder.id(v.node), v.output};
  if (v.output < 0 || static_cast<std::size_t>(v.output) >= builder.graph().node(value.node).outputs.size())
    throw InvalidArgument(fmt::format("a value that is needed has no output {}", v.output));
  return value;
}

/// "[Op] node 'x': why" -> "Op: why": the node's name here says nothing to the user.
std::string reason_of(const std::string& op, const std::string& message) {
  const std::size_t at = message.find("': ");
  return op + ": " + (message.starts_with("[") && at != std::string::npos ? message.substr(at + 3) : message);
}

}  // namespace

Builder& Val::made_by() const {
  if (builder == nullptr) throw InvalidArgument("a value that is needed is left out or empty");
  return *builder;
}

DType Val::dtype() const { return made_by().graph().info(ref(*this)).dtype; }
const Shape& Val::shape() const { return made_by().graph().info(ref(*this)).shape; }
const Tensor* Val::known() const { return made_by().graph().known_value(ref(*this)); }

void Ints::fail(std::size_t i) const {
  throw InvalidArgument(fmt::format("number {} of a list of {} is needed", i, size()));
}

std::int64_t checked_plus(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) throw InvalidArgument(fmt::format("{} + {} is too large", a, b));
  return sum;
}

std::int64_t checked_minus(std::int64_t a, std::int64_t b) {
  std::int64_t difference = 0;
  if (__builtin_sub_overflow(a, b, &difference))
    throw InvalidArgument(fmt::format("{} - {} is too large", a, b));
  return difference;
}

std::int64_t checked_times(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product))
    throw InvalidArgument(fmt::format("{} * {} is too large", a, b));
  return product;
}

int Val::rank() const {
  if (!shape().has_rank()) throw InvalidArgument("the rank of an input is not known");
  return shape().rank();
}

std::int64_t Val::dim(int axis) const {
  constexpr std::int64_t kMaxDim = std::int64_t{1} << 48;
  const std::int64_t size = shape()[positive_axis(axis, rank())];
  if (size > kMaxDim)
    throw InvalidArgument(fmt::format("an input has {} elements along axis {}", size, axis));
  return size;
}

int Val::list_length() const {
  constexpr std::int64_t kMaxLength = 2 * 64;  // pads have two elements an axis
  const std::int64_t length = static_dim(0);
  if (length > kMaxLength) throw InvalidArgument(fmt::format("a list for axes has {} elements", length));
  return static_cast<int>(length);
}

std::int64_t Val::static_dim(int axis) const {
  const std::int64_t size = dim(axis);
  if (size < 0)
    throw InvalidArgument(
        fmt::format("the size of axis {} of an input is not known (--shape can say it)", axis));
  return size;
}

Val Builder::op(const char* op, const std::vector<Val>& inputs, AttrMap attrs) {
  const OpDef* def = OpRegistry::global().find(op);
  if (!def) throw InvalidArgument(fmt::format("it needs {}, which is not supported", op));
  if (nodes_.size() >= kMaxNodes)
    throw InvalidArgument(fmt::format("the model becomes more than {} nodes", kMaxNodes));
  Made made{free_name(scope_ + "/" + op), op, inputs, attrs, kNoNode, false};
  Node node;
  node.name = graph_.unique_name(made.name);
  node.op = def;
  node.attrs = std::move(attrs);
  for (const Val& input : inputs) node.inputs.push_back(ref(input));
  try {
    made.id = place_node(graph_, std::move(node));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(reason_of(op, error.message()));
  } catch (const OutOfMemory& error) {
    throw InvalidArgument(reason_of(op, error.message()));
  }
  taken_.insert(made.name);
  nodes_.push_back(std::move(made));
  return {this, static_cast<int>(nodes_.size()) - 1, 0};
}

Val Builder::constant(const Tensor& value) {
  return op("Const", {}, {{"dtype", value.dtype()}, {"value", value}});
}

Val Builder::ints(const Ints& values, DType dtype) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  if (dtype == DType::Int64) return constant(Tensor::from<std::int64_t>(shape, values));
  const std::vector<std::int32_t> narrow(values.begin(), values.end());
  return constant(Tensor::from<std::int32_t>(shape, narrow));
}

Val Builder::number(double value, DType dtype) {
  if (dtype == DType::Float32) return constant(Tensor::scalar(static_cast<float>(value)));
  if (dtype == DType::Float64) return constant(Tensor::scalar(value));
  if (dtype == DType::Int32) return constant(Tensor::scalar(static_cast<std::int32_t>(value)));
  if (dtype == DType::Int64) return constant(Tensor::scalar(static_cast<std::int64_t>(value)));
  if (dtype == DType::Bool) return constant(Tensor::scalar(value != 0));
  return cast(constant(Tensor::scalar(value)), dtype);
}

void Builder::set_scope(std::string scope) {
  scope_ = std::move(scope);
  scope_begin_ = nodes_.size();
}

Val Builder::named(Val value, const std::string& name) {
  value.made_by();
  Made& made = nodes_[static_cast<std::size_t>(value.node)];
  if (made.is_final || value.output != 0 || static_cast<std::size_t>(value.node) < scope_begin_) {
    const Val copy = op("Identity", {value});
    return named(copy, name);
  }
  made.name = name;
  made.is_final = true;
  return value;
}

std::string Builder::free_name(const std::string& base) {
  if (!taken_.contains(base)) return base;
  for (int& number = next_number_.try_emplace(base, 1).first->second;; ++number) {
    std::string name = fmt::format("{}_{}", base, number);
    if (!taken_.contains(name)) return name;
  }
}

Val Builder::broadcast_source(Val value) const {
  for (;;) {
    const Made& made = nodes_[static_cast<std::size_t>(value.node)];
    if (made.op == "BroadcastTo") return made.inputs[0];
    if (made.op != "EnsureShape" && made.op != "Identity") return {};
    value = made.inputs[0];
  }
}

std::vector<Val> Builder::inputs_of(Val value, std::string_view op) const {
  const Made& made = nodes_[static_cast<std::size_t>(value.node)];
  return made.op == op && value.output == 0 ? made.inputs : std::vector<Val>{};
}

std::string Builder::name_of(Val value) const {
  const std::string& name = nodes_[static_cast<std::size_t>(value.node)].name;
  return value.output == 0 ? name : fmt::format("{}:{}", name, value.output);
}

GraphDef Builder::finish() const {
  GraphDef graph;
  graph.mutable_versions()->set_producer(1087);
  for (const Made& made : nodes_) {
    NodeDef& node = *graph.add_node();
    node.set_name(made.name);
    node.set_op(made.op);
    for (const Val& input : made.inputs) node.add_input(name_of(input));
    std::vector<DType> types;
    for (const Val& input : made.inputs) types.push_back(input.dtype());
    AttrMap attrs = made.attrs;
    add_type_attrs(made.op, types, attrs);
    for (const auto& [key, value] : attrs) (*node.mutable_attr())[key] = to_proto(value);
  }
  return graph;
}

}  // namespace braid::onnx
