#include "engine/import/onnx/builder.h"

#include <fmt/format.h>

#include "base/error.h"
#include "engine/import/convert.h"
#include "engine/import/onnx/type_attrs.h"
#include "engine/import/place.h"
#include "engine/ir/op.h"

namespace braid::onnx {

namespace {

ValueRef ref(const Val& v) { return {v.builder->id(v.node), v.output}; }

/// "[Op] node 'x': why" -> "Op: why": the node's name here says nothing to the user.
std::string reason_of(const std::string& op, const std::string& message) {
  const std::size_t at = message.find("': ");
  return op + ": " + (message.starts_with("[") && at != std::string::npos ? message.substr(at + 3) : message);
}

}  // namespace

DType Val::dtype() const { return builder->graph().info(ref(*this)).dtype; }
const Shape& Val::shape() const { return builder->graph().info(ref(*this)).shape; }
const Tensor* Val::known() const { return builder->graph().known_value(ref(*this)); }

int Val::rank() const {
  if (!shape().has_rank()) throw InvalidArgument("the rank of an input is not known");
  return shape().rank();
}

std::int64_t Val::dim(int axis) const { return shape()[positive_axis(axis, rank())]; }

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
  for (int number = 1;; ++number) {
    std::string name = fmt::format("{}_{}", base, number);
    if (!taken_.contains(name)) return name;
  }
}

GraphDef Builder::finish() const {
  GraphDef graph;
  graph.mutable_versions()->set_producer(1087);
  for (const Made& made : nodes_) {
    NodeDef& node = *graph.add_node();
    node.set_name(made.name);
    node.set_op(made.op);
    for (const Val& input : made.inputs) {
      const std::string& name = nodes_[static_cast<std::size_t>(input.node)].name;
      node.add_input(input.output == 0 ? name : fmt::format("{}:{}", name, input.output));
    }
    std::vector<DType> types;
    for (const Val& input : made.inputs) types.push_back(input.dtype());
    AttrMap attrs = made.attrs;
    add_type_attrs(made.op, types, attrs);
    for (const auto& [key, value] : attrs) (*node.mutable_attr())[key] = to_proto(value);
  }
  return graph;
}

}  // namespace braid::onnx
