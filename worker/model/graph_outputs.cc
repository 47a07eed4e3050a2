#include "worker/model/graph_outputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/ir/op.h"
#include "proto/job.pb.h"
#include "worker/model/loss_of_values.h"
#include "worker/step/training_graph.h"

namespace braid::worker {
namespace {

ValueRef constant(Graph& graph, const std::string& name, const Tensor& value) {
  return add_node(graph, "Const", name, {}, {{"dtype", value.dtype()}, {"value", value}});
}

Tensor integers(std::vector<std::int64_t> values) {
  return Tensor::from<std::int64_t>(Shape{static_cast<std::int64_t>(values.size())}, values);
}

ValueRef cast_to(Graph& graph, ValueRef value, DType dtype, const std::string& name) {
  const DType from = graph.info(value).dtype;
  return from == dtype ? value : add_node(graph, "Cast", name, {value}, {{"SrcT", from}, {"DstT", dtype}});
}

ValueRef flat(Graph& graph, ValueRef value, const std::string& name) {
  const Shape& shape = graph.info(value).shape;
  if (shape.has_rank() && shape.rank() == 1) return value;
  return add_node(graph, "Reshape", name, {value, constant(graph, name + "/shape", integers({-1}))},
                  {{"T", graph.info(value).dtype}, {"Tshape", DType::Int64}});
}

/// How many numbers a row has, where that is known.
std::optional<std::int64_t> row_width(const Shape& shape) {
  if (!shape.has_rank()) return std::nullopt;
  std::int64_t elements = 1;
  for (int axis = 1; axis < shape.rank(); ++axis) {
    if (shape[axis] == Shape::kUnknown) return std::nullopt;
    elements *= shape[axis];
  }
  return elements;
}

/// A number a row as [rows]; several stay beside each other.
ValueRef flat_rows(Graph& graph, ValueRef value, const std::string& name) {
  const Shape& shape = graph.info(value).shape;
  const std::optional<std::int64_t> width = row_width(shape);
  return shape.has_rank() && shape.rank() > 0 && width.value_or(1) != 1 ? value : flat(graph, value, name);
}

ValueRef mean_of(Graph& graph, ValueRef rows, const std::string& name) {
  return add_node(graph, "Mean", name, {rows, constant(graph, name + "/axes", integers({0}))},
                  {{"T", graph.info(rows).dtype}, {"Tidx", DType::Int64}, {"keep_dims", false}});
}

std::int64_t numbers_of_row(const InputColumn& column) {
  return column.row.is_static() ? column.row.elements() : 0;
}

/// Where the classes of logits are: a label of places [T] or [H, W] leaves one axis of [B, T, classes] or
/// [B, classes, H, W].
int class_axis(const Shape& logits, const std::optional<std::int64_t>& width, const InputColumn& label) {
  const std::int64_t labels = numbers_of_row(label);
  if (!width || labels == 0 || *width % labels != 0 || logits.rank() < 3) return -1;
  const std::int64_t classes = *width / labels;
  return logits[logits.rank() - 1] != classes && logits[1] == classes ? 1 : -1;
}

ValueRef classes_last(Graph& graph, ValueRef logits) {
  const int rank = graph.info(logits).shape.rank();
  std::vector<std::int64_t> order{0};
  for (int axis = 2; axis < rank; ++axis) order.push_back(axis);
  order.push_back(1);
  return add_node(graph, "Transpose", "prediction/classes_last",
                  {logits, constant(graph, "prediction/order", integers(order))},
                  {{"T", DType::Float32}, {"Tperm", DType::Int64}});
}

}  // namespace

ValueRef behind_shapes(const Graph& graph, ValueRef value) {
  for (;;) {
    const Node& node = graph.node(value.node);
    const std::string& op = node.op->name;
    if (op != "Identity" && op != "Reshape" && op != "Squeeze" && op != "ExpandDims") return value;
    value = node.inputs[0];
  }
}

ValueRef logits_behind(const Graph& graph, int kind, ValueRef prediction) {
  const Node& made = graph.node(behind_shapes(graph, prediction).node);
  const char* const op = kind == proto::AttachedLoss::SIGMOID   ? "Sigmoid"
                         : kind == proto::AttachedLoss::SOFTMAX ? "Softmax"
                                                                : "";
  return made.op->name == op ? made.inputs[0] : prediction;
}

ValueRef attach_loss(Graph& graph, int kind, ValueRef prediction, ValueRef label) {
  prediction = cast_to(graph, logits_behind(graph, kind, prediction), DType::Float32, "loss/logits");
  if (kind == proto::AttachedLoss::SOFTMAX) {
    const ValueRef classes = flat(graph, cast_to(graph, label, DType::Int64, "loss/classes"), "loss/labels");
    const ValueRef rows = add_node(graph, "SparseSoftmaxCrossEntropyWithLogits", "loss/rows",
                                   {prediction, classes}, {{"T", DType::Float32}, {"Tlabels", DType::Int64}});
    return mean_of(graph, rows, "loss/mean");
  }
  const ValueRef values = flat(graph, prediction, "loss/predicted");
  const ValueRef truths = flat(graph, cast_to(graph, label, DType::Float32, "loss/truth"), "loss/labels");
  const bool sigmoid = kind == proto::AttachedLoss::SIGMOID;
  const ValueRef rows = add_node(graph, sigmoid ? "braid.SigmoidCrossEntropy" : "SquaredDifference",
                                 "loss/rows", {values, truths}, {{"T", DType::Float32}});
  return mean_of(graph, rows, "loss/mean");
}

ValueRef scalar_loss(Graph& graph, ValueRef loss) {
  loss = cast_to(graph, loss, DType::Float32, "loss/float32");
  const Shape& shape = graph.info(loss).shape;
  if (shape.has_rank() && shape.rank() == 0) return loss;
  return mean_of(graph, flat(graph, loss, "loss/flat"), "loss/mean");
}

std::vector<std::string> output_names() {
  return {"probability", "logit", "class", "probabilities", "logits", "value"};
}

SaidOfPrediction said_by_loss(const Graph& train, ValueRef loss, const Graph& predicts, ValueRef prediction,
                              const std::string& label, bool several) {
  for (const ValueRef& each : {behind_shapes(predicts, prediction), prediction}) {
    const NodeId found = train.find(predicts.node(each.node).name);
    if (found == kNoNode || train.node(found).op != predicts.node(each.node).op) continue;
    if (is_loss_of_values(train, {found, each.output}, loss)) return SaidOfPrediction::IsValue;
    const NodeId fed = train.find(label);
    if (fed != kNoNode && is_loss_of_differences(train, {found, each.output}, fed, loss))
      return SaidOfPrediction::IsValue;
    if (is_loss_of_class_logits(train, {found, each.output}, loss)) return SaidOfPrediction::IsClassLogits;
    const bool logits = fed != kNoNode && is_loss_of_logits(train, {found, each.output}, fed, loss) &&
                        !(several && is_compared(train, fed));
    return logits ? SaidOfPrediction::IsLogit : SaidOfPrediction::Nothing;
  }
  return SaidOfPrediction::Nothing;
}

PredictedValue predicted_value(const Graph& graph, ValueRef prediction, const proto::AttachedLoss* attached,
                               const InputColumn* label, SaidOfPrediction said) {
  PredictedValue predicted{prediction, Prediction::Value};
  const ValueRef made = behind_shapes(graph, prediction);
  const Node& node = graph.node(made.node);
  const std::optional<std::int64_t> width = row_width(graph.info(prediction).shape);
  if (attached) {
    predicted.value = logits_behind(graph, attached->kind(), prediction);
    predicted.kind = attached->kind() == proto::AttachedLoss::SIGMOID   ? Prediction::Probability
                     : attached->kind() == proto::AttachedLoss::SOFTMAX ? Prediction::Classes
                                                                        : Prediction::Value;
  } else if (node.op->name == "Sigmoid") {
    predicted = {node.inputs[0], Prediction::Probability};
  } else if (node.op->name == "Softmax") {
    predicted = {node.inputs[0], Prediction::Classes};
  } else if (label) {
    if (said == SaidOfPrediction::IsValue)
      predicted.kind = Prediction::Value;
    else if (said == SaidOfPrediction::IsLogit && width == numbers_of_row(*label))
      predicted.kind = Prediction::Probability;
    else if (said == SaidOfPrediction::IsClassLogits && width == numbers_of_row(*label) && width != 1)
      predicted.kind = Prediction::Classes;
    else if (label->dtype == DType::Int64 && width != 1)
      predicted.kind = Prediction::Classes;
    else if (label->row.rank() == 0 && width.value_or(1) == 1)  // of integers, too: 0 and 1
      predicted.kind = Prediction::Probability;
    else
      predicted.kind = Prediction::Value;
  }
  if (predicted.kind == Prediction::Classes && label && width) {
    predicted.label_has_shares =
        label->dtype != DType::Int64 && width != 1 && width == numbers_of_row(*label);
    predicted.class_axis = class_axis(graph.info(predicted.value).shape, width, *label);
  }
  return predicted;
}

GraphOutputs add_output_nodes(Graph& graph, const PredictedValue& predicted) {
  GraphOutputs made;
  made.kind = predicted.kind;
  ValueRef value = cast_to(graph, predicted.value, DType::Float32, "prediction/float32");
  if (predicted.class_axis == 1) value = classes_last(graph, value);
  const Shape shape = graph.info(value).shape;
  const std::int32_t last = shape.has_rank() && shape.rank() > 1 ? shape.rank() - 1 : 1;
  const AttrMap of_float{{"T", DType::Float32}};
  const auto add = [&](const char* op, const char* name, std::vector<ValueRef> inputs, AttrMap attrs) {
    made.outputs.push_back(
        {graph.value_name(add_node(graph, op, name, std::move(inputs), std::move(attrs))), ""});
  };
  switch (predicted.kind) {
    case Prediction::Probability: {
      const ValueRef logit = flat_rows(graph, value, "prediction/flat");
      add("Sigmoid", "probability", {logit}, of_float);
      add("Identity", "logit", {logit}, of_float);
      break;
    }
    case Prediction::Classes:
      add("ArgMax", "class", {value, constant(graph, "prediction/axis", Tensor::scalar<std::int32_t>(last))},
          {{"T", DType::Float32}, {"Tidx", DType::Int32}, {"output_type", DType::Int64}});
      add("Softmax", "probabilities", {value}, of_float);
      add("Identity", "logits", {value}, of_float);
      break;
    case Prediction::Value:
      add("Identity", "value", {value}, of_float);
      break;
  }
  made.prediction = made.outputs.back().name;
  return made;
}

void read_constant(Graph& graph, const std::string& variable, const Tensor& value) {
  const ValueRef source = constant(graph, variable + "/value", value);
  const int nodes = graph.size();
  for (NodeId id = 0; id < nodes; ++id) {
    const Node& node = graph.node(id);
    const bool reads = node.op->name == "ReadVariableOp" || node.op->name == "ResourceGather";
    if (node.removed || !reads || variable_of(graph, node.inputs[0]).name != variable) continue;
    ValueRef replacement = source;
    if (node.op->name == "ResourceGather") {
      const ValueRef axis = constant(graph, node.name + "/axis", Tensor::scalar<std::int32_t>(0));
      const std::vector<ValueRef> inputs{source, graph.node(id).inputs[1], axis};
      replacement =
          add_node(graph, "GatherV2", graph.node(id).name + "/rows", inputs,
                   {{"Tparams", value.dtype()}, {"Tindices", DType::Int64}, {"Taxis", DType::Int32}});
    }
    graph.replace_uses({id, 0}, replacement);
  }
}

void fill_by_rule(const InitSpec& spec, RngKey key, Tensor& value) {
  if (value.dtype() == DType::Float32) return fill_initial(spec, key, 0, value.data<float>());
  const double number = spec.kind == InitKind::Constant ? double{spec.a} : 0.0;
  if (value.dtype() == DType::Float64) std::ranges::fill(value.data<double>(), number);
  if (value.dtype() == DType::Int32)
    std::ranges::fill(value.data<std::int32_t>(), static_cast<std::int32_t>(number));
  if (value.dtype() == DType::Int64)
    std::ranges::fill(value.data<std::int64_t>(), static_cast<std::int64_t>(number));
}

std::string init_text(const InitSpec& spec) {
  switch (spec.kind) {
    case InitKind::Constant:
      return fmt::format("{}", spec.a);
    case InitKind::Uniform:
      return fmt::format("uniform numbers in [{}, {})", spec.a, spec.b);
    case InitKind::Normal:
      return fmt::format("normal numbers around {}, deviation {}", spec.a, spec.b);
    case InitKind::TruncatedNormal:
      return fmt::format("truncated normal numbers around {}, deviation {}", spec.a, spec.b);
    default:
      return "zeros";
  }
}

}  // namespace braid::worker
