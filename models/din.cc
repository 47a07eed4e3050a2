// Deep interest network (Zhou et al. 2018): how much an item h_l of the history counts depends on the
// candidate c.
//   a_l = w relu(W [h_l, c, h_l * c] + b) where id_l is not 0, else 0;   interest = sum_l a_l h_l
//   y = MLP([interest, c, interest * c, dense, embeddings])
// As in the paper the a_l are no softmax. Columns: "history" [B, L] int64, a list whose ids begin at 1 and
// that 0 fills, "item" [B, 1] int64, whose ids begin at 0, both of one table; "dense" [B, D] float (or none),
// "sparse" [B, C] int64 buckets, "label" [B] in {0, 1}.
//
// Initial values are those of the authors' implementation (zhougr1993/DeepInterestNetwork), which leaves all
// to TensorFlow: tables too are Glorot uniform, in +-sqrt(6 / (rows + dim)); biases zeros.
#include <algorithm>

#include "models/common.h"
#include "models/id_columns.h"

namespace braid {
namespace {

constexpr std::int64_t kAttentionWidth = 32;

/// The weighted sum of history [B, L, dim] for item [B, dim] -> [B, dim]. The layer's product with c is made
/// once a row, not once an item of the history.
Output interest_of(GraphBuilder& b, const Output& history, const Output& item, const Output& mask,
                   std::int64_t length, std::int64_t dim) {
  const NameScope scope(b, "attention");
  const Output product = b.mul(history, b.reshape(item, {-1, 1, dim}));
  const Output pairs = b.reshape(b.concat({history, product}, 2), {-1, 2 * dim});
  const Output from_pairs = b.dense("history", pairs, 2 * dim, kAttentionWidth, false);
  const Output from_item = b.dense("item", item, dim, kAttentionWidth, false);
  const Output hidden = b.relu(b.add(b.reshape(from_pairs, {-1, length, kAttentionWidth}),
                                     b.reshape(from_item, {-1, 1, kAttentionWidth})));
  const Output scores = b.dense("score", b.reshape(hidden, {-1, kAttentionWidth}), kAttentionWidth, 1, false);
  const Output weights = b.mul(b.reshape(scores, {-1, 1, length}), mask);
  return b.reshape(b.op("BatchMatMulV2", {weights, history}), {-1, dim});
}

}  // namespace

ModelGraph build_din(const ModelConfig& config) {
  constexpr const char* kName = "din";
  const std::vector<std::int64_t> hidden =
      config.hidden.empty() ? std::vector<std::int64_t>{64, 32} : config.hidden;
  const std::int64_t dim = config.embedding_dim ? config.embedding_dim : 16;
  const std::int64_t buckets = config.hash_buckets ? config.hash_buckets : 100000;
  GraphBuilder b;
  Output history_ids = column_placeholder(b, config, kName, "history", DType::Int64);
  Output item_id = column_placeholder(b, config, kName, "item", DType::Int64);
  const NumericInput dense = numeric_input(b, config, kName);
  const IdInputs sparse = id_inputs(b, config, kName, "sparse");
  Output label = column_placeholder(b, config, kName, "label", DType::Float32);
  const RowWeights weights = row_weights(b, config);
  const std::int64_t length = row_shape(config, kName, "history")[0];
  const std::vector<IdColumn> columns = id_columns(b, config, kName, "sparse", sparse, buckets);

  const std::int64_t items =
      std::max(ids_of(config, "history", buckets + 1), ids_of(config, "item", buckets) + 1);
  // One gather for the history and the candidate, behind it: [B, L + 1, dim].
  const Output table = embedding_table(b, "items", items, dim, config.sparse_tables,
                                       table_init(config, glorot_uniform(items, dim)));
  const Output shifted =
      b.add(b.reshape(item_id, {-1, 1}), b.constant(Tensor::scalar<std::int64_t>(1), "first_id"));
  const Output ids = b.reshape(b.concat({history_ids, shifted}, 1), {-1});
  const Output rows = b.reshape(b.gather(table, ids), {-1, length + 1, dim});
  const std::vector<std::int64_t> sizes{length, 1};
  const Output parts = b.op("SplitV",
                            {rows, b.constant(Tensor::from<std::int64_t>(Shape{2}, sizes), "sizes"),
                             b.constant(Tensor::scalar<std::int32_t>(1), "size_axis")},
                            {{"num_split", 2}}, "history_and_item");
  const Output item = b.reshape({parts.node, 1}, {-1, dim});
  const Output interest = interest_of(b, parts, item, list_mask(b, history_ids, length), length, dim);
  std::vector<Output> features{interest, item, b.mul(interest, item)};
  if (dense.values) features.push_back(*dense.values);
  for (Output& row : column_embeddings(b, config, columns, dim, glorot_uniform))
    features.push_back(std::move(row));
  std::int64_t width = 3 * dim + dense.width + width_of(columns, dim);
  const Output top = mlp_layers(b, "top", b.concat(features, 1), width, hidden, config.dropout);
  const Output logits = logit(b, "logit", top, width);
  return finish_model(b, mean_sigmoid_loss(b, logits, label, weights), logits,
                      sparse.read_between(dense.read_beside({"history", "item"}), {"label"}), "label",
                      Prediction::Probability, weights);
}

}  // namespace braid
