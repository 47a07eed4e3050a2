#include "models/common.h"

#include <cmath>

#include "base/error.h"
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

Output mlp_layers(GraphBuilder& builder, const std::string& name, Output x, std::int64_t& width,
                  const std::vector<std::int64_t>& hidden, double dropout_rate) {
  NameScope scope(builder, name);
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    x = builder.dense("layer" + std::to_string(i), x, width, hidden[i], true);
    x = dropout(builder, x, dropout_rate);
    width = hidden[i];
  }
  return x;
}

Output embedding_table(GraphBuilder& builder, const std::string& name, std::int64_t buckets, std::int64_t dim,
                       bool sparse, double init) {
  NameScope scope(builder, name);
  const float range = init > 0 ? static_cast<float>(init) : 1.0F / std::sqrt(static_cast<float>(dim));
  return builder.variable("table", Shape{buckets, dim},
                          {.init = {InitKind::Uniform, -range, range}, .trainable = true, .sparse = sparse});
}

Output embedding(GraphBuilder& builder, const std::string& name, const Output& ids, std::int64_t buckets,
                 std::int64_t dim, bool sparse, double init) {
  const Output table = embedding_table(builder, name, buckets, dim, sparse, init);
  NameScope scope(builder, name);
  return builder.gather(table, ids);
}

std::vector<Output> column_embeddings(GraphBuilder& builder, const Output& ids, std::int64_t columns,
                                      std::int64_t buckets, std::int64_t dim, const ModelConfig& config) {
  const Output split = builder.op("Unpack", {ids}, {{"num", columns}, {"axis", 1}}, "columns");
  std::vector<Output> rows;
  for (std::int64_t c = 0; c < columns; ++c)
    rows.push_back(embedding(builder, "c" + std::to_string(c), {split.node, static_cast<int>(c)}, buckets,
                             dim, config.sparse_tables, config.embedding_init));
  return rows;
}

Output logit(GraphBuilder& builder, const std::string& name, const Output& x, std::int64_t width) {
  return builder.reshape(builder.dense(name, x, width, 1, false), {-1});
}

Output mean_sigmoid_loss(GraphBuilder& builder, const Output& logits, const Output& labels) {
  return builder.reduce_mean(builder.op("braid.SigmoidCrossEntropy", {logits, labels}));
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
                        std::vector<ModelTask> tasks) {
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
