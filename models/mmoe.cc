// Multi-gate mixture of experts (Ma et al. 2018): experts share the input, each task mixes them by a gate of
// its own, and the tasks' losses add.
//   x = [dense, embeddings];  f_e = MLP_e(x);  g_t = softmax(W_t x);  y_t = w_t relu(V_t sum_e g_te f_e)
// Columns: "dense" [B, D] float (or none), "sparse" [B, C] int64 buckets, and one [B] in {0, 1} for each
// task, named like it. `hidden` gives the experts' widths; a tower is half as wide as the last.
//
// Initial values are those of DeepCTR (the paper names none): tables normal of deviation 1e-4, experts and
// towers Glorot normal, gates and logits Glorot uniform, biases zeros.
#include <algorithm>

#include "base/error.h"
#include "models/common.h"
#include "models/id_columns.h"

namespace braid {

ModelGraph build_mmoe(const ModelConfig& config) {
  constexpr const char* kName = "mmoe";
  const std::vector<std::int64_t> hidden =
      config.hidden.empty() ? std::vector<std::int64_t>{64, 32} : config.hidden;
  const std::vector<std::string> tasks =
      config.tasks.empty() ? std::vector<std::string>{"click", "purchase"} : config.tasks;
  const std::int64_t dim = config.embedding_dim ? config.embedding_dim : 8;
  const std::int64_t buckets = config.hash_buckets ? config.hash_buckets : 100000;
  const std::int64_t experts = config.experts ? config.experts : 4;
  if (experts < 1) throw InvalidArgument("model 'mmoe': experts must be at least 1");
  GraphBuilder b;
  const NumericInput dense = numeric_input(b, config, kName);
  const IdInputs sparse = id_inputs(b, config, kName, "sparse");
  std::vector<Output> labels;
  for (const std::string& task : tasks)
    labels.push_back(column_placeholder(b, config, kName, task, DType::Float32));
  const std::vector<IdColumn> columns = id_columns(b, config, kName, "sparse", sparse, buckets);
  const std::int64_t width = dense.width + width_of(columns, dim);
  const RowWeights weights = row_weights(b, config);

  const std::vector<Output> parts = column_embeddings(
      b, config, columns, dim, [](std::int64_t, std::int64_t) { return normal_init(1e-4); });
  const Output x = dense.beside(b, parts);
  std::vector<Output> tops;
  std::int64_t top = width;
  for (std::int64_t e = 0; e < experts; ++e) {
    top = width;
    tops.push_back(
        mlp_layers(b, "expert" + std::to_string(e), x, top, hidden, config.dropout, LayerInit::GlorotNormal));
  }
  const Output all = b.op("Pack", tops, {{"N", experts}, {"axis", 1}}, "experts");  // [B, experts, top]
  const std::int64_t tower = std::max<std::int64_t>(top / 2, 1);
  std::vector<Output> losses, logits;
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    NameScope scope(b, tasks[t] + "_task");
    const Output gate = b.op("Softmax", {b.dense("gate", x, width, experts, false)});
    const Output mixed = b.op("BatchMatMulV2", {b.reshape(gate, {-1, 1, experts}), all});
    const Output hidden_layer = dropout(
        b, dense_layer(b, "tower", b.reshape(mixed, {-1, top}), top, tower, true, LayerInit::GlorotNormal),
        config.dropout);
    logits.push_back(logit(b, "logit", hidden_layer, tower));
    losses.push_back(mean_sigmoid_loss(b, logits.back(), labels[t], weights));
  }
  const Output loss = b.op("AddN", losses, {{"N", static_cast<std::int64_t>(losses.size())}}, "loss");
  std::vector<ModelTask> predicted;
  for (std::size_t t = 0; t < tasks.size(); ++t) predicted.push_back({tasks[t], logits[t].name(), tasks[t]});
  return finish_model(b, loss, logits.front(), sparse.read_between(dense.read_beside(), tasks), tasks.front(),
                      Prediction::Probability, weights, std::move(predicted));
}

}  // namespace braid
