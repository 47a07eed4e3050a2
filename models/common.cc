#include "models/common.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/input/schema/column_spec.h"
#include "proto/graph.pb.h"

namespace braid {

ModelGraph::ModelGraph() = default;
ModelGraph::ModelGraph(ModelGraph&&) noexcept = default;
ModelGraph& ModelGraph::operator=(ModelGraph&&) noexcept = default;
ModelGraph::~ModelGraph() = default;

const Shape& row_shape(const ModelConfig& config, const std::string& model, const std::string& column) {
  auto it = config.columns.find(column);
  if (it == config.columns.end()) {
    std::string known;
    if (const auto fields = config.fields.find(column); fields != config.fields.end())
      throw InvalidArgument("model '" + model + "' reads '" + column +
                            "' as lists of a fixed length, and column '" + fields->second[0].name +
                            "' is ragged: give it a length and no ragged");
    for (const auto& [name, shape] : config.columns) known += (known.empty() ? "" : ", ") + name;
    throw InvalidArgument("model '" + model + "' reads column '" + column +
                          "', but the input has only: " + known);
  }
  return it->second;
}

Output column_placeholder(GraphBuilder& builder, const ModelConfig& config, const std::string& model,
                          const std::string& column, DType dtype) {
  std::vector<std::int64_t> dims{Shape::kUnknown};
  for (std::int64_t d : row_shape(config, model, column).dims()) dims.push_back(d);
  return builder.placeholder(column, dtype, Shape(std::move(dims)));
}

Output dropout(GraphBuilder& builder, const Output& x, double rate) {
  return rate > 0 ? builder.op("braid.Dropout", {x}, {{"rate", rate}}, "dropout") : x;
}

InitSpec uniform_init(double range) {
  return {InitKind::Uniform, -static_cast<float>(range), static_cast<float>(range)};
}

InitSpec normal_init(double deviation) { return {InitKind::Normal, 0.0F, static_cast<float>(deviation)}; }

InitSpec glorot_uniform(std::int64_t rows, std::int64_t dim) {
  return uniform_init(std::sqrt(6.0 / static_cast<double>(rows + dim)));
}

InitSpec table_init(const ModelConfig& config, const InitSpec& models_own) {
  return config.embedding_init > 0 ? uniform_init(config.embedding_init) : models_own;
}

namespace {

InitSpec kernel_init(LayerInit init, std::int64_t in, std::int64_t out) {
  switch (init) {
    case LayerInit::GlorotUniform:
      return glorot_uniform(in, out);
    case LayerInit::GlorotNormal:
    case LayerInit::Dlrm:
      return normal_init(std::sqrt(2.0 / static_cast<double>(in + out)));
    case LayerInit::Linear:
      return uniform_init(1 / std::sqrt(static_cast<double>(in)));
    case LayerInit::Zeros:
      break;
  }
  return {};
}

InitSpec bias_init(LayerInit init, std::int64_t in, std::int64_t out) {
  if (init == LayerInit::Dlrm) return normal_init(std::sqrt(1.0 / static_cast<double>(out)));
  if (init == LayerInit::Linear) return kernel_init(init, in, out);
  return {};
}

}  // namespace

Output dense_layer(GraphBuilder& builder, const std::string& name, const Output& x, std::int64_t in,
                   std::int64_t out, bool with_relu, LayerInit init) {
  NameScope scope(builder, name);
  const Output kernel = builder.variable("kernel", Shape{in, out}, {.init = kernel_init(init, in, out)});
  const Output bias = builder.variable("bias", Shape{out}, {.init = bias_init(init, in, out)});
  const Output y = builder.bias_add(builder.matmul(x, builder.read(kernel)), builder.read(bias));
  return with_relu ? builder.relu(y) : y;
}

NormWeights norm_weights(GraphBuilder& builder, const std::string& name, std::int64_t dim) {
  const NameScope scope(builder, name);
  return {name,
          builder.read(builder.variable("scale", Shape{dim}, {.init = {InitKind::Constant, 1.0F, 0.0F}})),
          builder.read(builder.variable("shift", Shape{dim}, {}))};
}

Output layer_norm(GraphBuilder& builder, const NormWeights& weights, const Output& x, float epsilon) {
  const NameScope scope(builder, weights.name);
  const Output centred = builder.op("Sub", {x, builder.reduce_mean(x, {1}, true)});
  const Output variance = builder.reduce_mean(builder.op("Square", {centred}), {1}, true);
  const Output factor =
      builder.op("Rsqrt", {builder.add(variance, builder.constant(Tensor::scalar(epsilon), "epsilon"))});
  return builder.add(builder.mul(builder.mul(centred, factor), weights.scale), weights.shift);
}

Output layer_norm(GraphBuilder& builder, const std::string& name, const Output& x, std::int64_t dim,
                  float epsilon) {
  return layer_norm(builder, norm_weights(builder, name, dim), x, epsilon);
}

Output mlp_layers(GraphBuilder& builder, const std::string& name, Output x, std::int64_t& width,
                  const std::vector<std::int64_t>& hidden, double dropout_rate, LayerInit init) {
  NameScope scope(builder, name);
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    x = dense_layer(builder, "layer" + std::to_string(i), x, width, hidden[i], true, init);
    x = dropout(builder, x, dropout_rate);
    width = hidden[i];
  }
  return x;
}

Output embedding_table(GraphBuilder& builder, const std::string& name, std::int64_t rows, std::int64_t dim,
                       bool sparse, const InitSpec& init, const std::string& former_name) {
  return builder.variable(name + "/table", Shape{rows, dim},
                          {.init = init,
                           .trainable = true,
                           .sparse = sparse,
                           .former_name = former_name.empty() ? former_name : former_name + "/table"});
}

Output embedding(GraphBuilder& builder, const std::string& name, const Output& ids, std::int64_t rows,
                 std::int64_t dim, bool sparse, const InitSpec& init) {
  const Output table = embedding_table(builder, name, rows, dim, sparse, init);
  NameScope scope(builder, name);
  return builder.gather(table, ids);
}

Output logit(GraphBuilder& builder, const std::string& name, const Output& x, std::int64_t width,
             LayerInit init) {
  return builder.reshape(dense_layer(builder, name, x, width, 1, false, init), {-1});
}

RowWeights row_weights(GraphBuilder& builder, const ModelConfig& config) {
  RowWeights weights;
  weights.of_class = config.class_weights;
  if (config.columns.contains(std::string(kWeightOutput)))
    weights.column = builder.placeholder(std::string(kWeightOutput), DType::Float32, {Shape::kUnknown});
  return weights;
}

namespace {

void check_class_weights(const RowWeights& weights, std::int64_t classes) {
  if (!weights.of_class.empty() && std::ssize(weights.of_class) != classes)
    throw InvalidArgument("model.class_weights has " + std::to_string(weights.of_class.size()) +
                          " numbers, but there are " + std::to_string(classes) + " classes");
}

/// The mean of row losses [B], times factors [B] where there are any.
Output weighted_mean(GraphBuilder& builder, Output losses, const std::vector<Output>& factors) {
  for (const Output& factor : factors) losses = builder.mul(losses, factor);
  return builder.reduce_mean(losses);
}

std::vector<Output> factors_of(const RowWeights& weights) {
  return weights.column ? std::vector<Output>{*weights.column} : std::vector<Output>{};
}

}  // namespace

Output mean_sigmoid_loss(GraphBuilder& builder, const Output& logits, const Output& labels,
                         const RowWeights& weights) {
  check_class_weights(weights, 2);
  std::vector<Output> factors = factors_of(weights);
  if (!weights.of_class.empty()) {
    const auto negative = static_cast<float>(weights.of_class[0]),
               positive = static_cast<float>(weights.of_class[1]);
    const Output more =
        builder.mul(labels, builder.constant(Tensor::scalar(positive - negative), "class_weight/more"));
    factors.push_back(builder.add(more, builder.constant(Tensor::scalar(negative), "class_weight/least")));
  }
  return weighted_mean(builder, builder.op("braid.SigmoidCrossEntropy", {logits, labels}), factors);
}

Output mean_softmax_loss(GraphBuilder& builder, const Output& logits, const Output& labels,
                         std::int64_t classes, const RowWeights& weights) {
  check_class_weights(weights, classes);
  std::vector<Output> factors = factors_of(weights);
  if (!weights.of_class.empty()) {
    const std::vector<float> all(weights.of_class.begin(), weights.of_class.end());
    factors.push_back(
        builder.op("GatherV2", {builder.constant(Tensor::from<float>(Shape{classes}, all), "class_weights"),
                                labels, builder.constant(Tensor::scalar<std::int32_t>(0))}));
  }
  return weighted_mean(builder, builder.op("SparseSoftmaxCrossEntropyWithLogits", {logits, labels}), factors);
}

Output mean_squared_loss(GraphBuilder& builder, const Output& values, const Output& truths,
                         const RowWeights& weights) {
  const Output losses = builder.op("SquaredDifference", {values, truths});
  if (!weights.column) return builder.reduce_mean(losses);
  return weighted_mean(builder, builder.reshape(losses, {-1}), factors_of(weights));
}

namespace {

/// The nodes of the names that users know, of one task or, without a name, of the model.
void add_outputs(GraphBuilder& b, const Output& prediction, Prediction predicts, const std::string& task,
                 std::vector<ModelOutput>& outputs) {
  const auto add = [&](const char* op, const char* name, const std::vector<Output>& inputs,
                       AttrMap attrs = {}) {
    const std::string full = task.empty() ? name : task + "/" + name;
    const Output node = b.op(op, inputs, std::move(attrs), full);
    if (node.node != full) throw Internal("a model has a node '" + full + "' that is not its output");
    outputs.push_back({full, task});
  };
  switch (predicts) {
    case Prediction::Probability:
      add("Sigmoid", "probability", {prediction});
      return add("Identity", "logit", {prediction});
    case Prediction::Classes:
      add("ArgMax", "class",
          {prediction,
           b.constant(Tensor::scalar<std::int32_t>(1), task.empty() ? "class_axis" : task + "/class_axis")},
          {{"output_type", DType::Int64}});
      add("Softmax", "probabilities", {prediction});
      return add("Identity", "logits", {prediction});
    case Prediction::Value:
      return add("Identity", "value", {prediction});
  }
}

}  // namespace

ModelGraph finish_model(GraphBuilder& builder, const Output& loss, const Output& prediction,
                        std::vector<std::string> columns, std::string label, Prediction predicts,
                        const RowWeights& weights, std::vector<ModelTask> tasks) {
  if (weights.column) columns.push_back(weights.column->node);
  ModelGraph model;
  if (tasks.empty()) add_outputs(builder, prediction, predicts, "", model.outputs);
  for (const ModelTask& task : tasks)
    add_outputs(builder, {task.prediction, 0}, predicts, task.name, model.outputs);
  model.graph = std::make_unique<GraphDef>(builder.graph());
  model.loss = loss.name();
  model.prediction = prediction.name();
  model.columns = std::move(columns);
  model.label = std::move(label);
  model.predicts = predicts;
  model.tasks = std::move(tasks);
  return model;
}

}  // namespace braid
