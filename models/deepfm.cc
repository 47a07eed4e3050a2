// DeepFM (Guo et al. 2017): a factorization machine and an MLP over the same embeddings; their logits add.
//   y = w_dense x + sum_c w_c + 1/2 sum_k ((sum_c v_ck)^2 - sum_c v_ck^2) + MLP([x, v_1, ..., v_C])
// A row of a table is [w_c, v_c]: one gather a column. Columns: "dense" [B, D] float (or none), "sparse" [B,
// C] int64 buckets, "label" [B] in {0, 1}.
//
// Initial values are those of DeepCTR: embeddings normal of deviation 1e-4, layers Glorot normal, biases
// zeros. Its w_c begin at zero; here they share the rows of the v_c, and begin within 1e-4 of it.
#include "models/common.h"
#include "models/id_columns.h"

namespace braid {
namespace {

Output sum_over(GraphBuilder& b, const Output& x, std::int32_t axis) {
  return b.op("Sum", {x, b.constant(Tensor::from<std::int32_t>(Shape{1}, std::vector{axis}), "axis")});
}

/// vectors [B, C, dim] -> [B]
Output pairwise(GraphBuilder& b, const Output& vectors) {
  const Output square_of_sum = b.op("Square", {sum_over(b, vectors, 1)});
  const Output sum_of_squares = sum_over(b, b.op("Square", {vectors}), 1);
  const Output twice = sum_over(b, b.op("Sub", {square_of_sum, sum_of_squares}), 1);
  return b.mul(twice, b.constant(Tensor::scalar(0.5F), "half"));
}

}  // namespace

ModelGraph build_deepfm(const ModelConfig& config) {
  constexpr const char* kName = "deepfm";
  const std::vector<std::int64_t> hidden =
      config.hidden.empty() ? std::vector<std::int64_t>{128, 64} : config.hidden;
  const std::int64_t dim = config.embedding_dim ? config.embedding_dim : 8;
  const std::int64_t buckets = config.hash_buckets ? config.hash_buckets : 100000;
  GraphBuilder b;
  const NumericInput dense = numeric_input(b, config, kName);
  const IdInputs sparse = id_inputs(b, config, kName, "sparse");
  Output label = column_placeholder(b, config, kName, "label", DType::Float32);
  const RowWeights loss_weights = row_weights(b, config);
  std::vector<IdColumn> id_fields = id_columns(b, config, kName, "sparse", sparse, buckets);
  require_one_width(kName, id_fields, dim);
  const auto columns = static_cast<std::int64_t>(id_fields.size());

  const std::vector<Output> rows = column_embeddings(
      b, config, id_fields, dim + 1, [](std::int64_t, std::int64_t) { return normal_init(1e-4); });
  const Output all = b.op("Pack", rows, {{"N", columns}, {"axis", 1}}, "rows");  // [B, C, 1 + dim]
  const std::vector<std::int64_t> sizes{1, dim};
  const Output parts = b.op("SplitV",
                            {all, b.constant(Tensor::from<std::int64_t>(Shape{2}, sizes), "sizes"),
                             b.constant(Tensor::scalar<std::int32_t>(2), "size_axis")},
                            {{"num_split", 2}}, "weight_and_vector");
  const Output weights = b.reshape(parts, {-1, columns}), vectors{parts.node, 1};
  Output machine, deep;
  {
    NameScope name(b, "machine");
    Output first = sum_over(b, weights, 1);
    if (dense.values)
      first = b.add(logit(b, "dense", *dense.values, dense.width, LayerInit::GlorotNormal), first);
    machine = b.add(first, pairwise(b, vectors));
  }
  {
    NameScope name(b, "deep");
    std::int64_t width = dense.width + columns * dim;
    const Output x = dense.beside(b, {b.reshape(vectors, {-1, columns * dim})});
    deep = mlp_layers(b, "mlp", x, width, hidden, config.dropout, LayerInit::GlorotNormal);
    deep = logit(b, "logit", deep, width, LayerInit::GlorotNormal);
  }
  const Output logits = b.add(machine, deep);
  return finish_model(b, mean_sigmoid_loss(b, logits, label, loss_weights), logits,
                      sparse.read_between(dense.read_beside(), {"label"}), "label", Prediction::Probability,
                      loss_weights);
}

}  // namespace braid
