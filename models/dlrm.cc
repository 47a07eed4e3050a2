// DLRM (Naumov et al. 2019): bottom MLP over the dense columns, one embedding a categorical column, dot
// products of all pairs, top MLP. Columns: "dense" [B, D] float (or none), "sparse" [B, C] int64 buckets,
// "label" [B] in {0, 1}. `hidden` gives the top MLP's widths.
//
// Initial values are those of the authors' implementation (facebookresearch/dlrm): tables uniform in
// +-1 / sqrt(rows); kernels normal of deviation sqrt(2 / (in + out)), biases of sqrt(1 / out).
#include <cmath>

#include "base/error.h"
#include "models/common.h"
#include "models/id_columns.h"

namespace braid {

ModelGraph build_dlrm(const ModelConfig& config) {
  constexpr const char* kName = "dlrm";
  const std::vector<std::int64_t> top =
      config.hidden.empty() ? std::vector<std::int64_t>{128, 64} : config.hidden;
  const std::int64_t dim = config.embedding_dim ? config.embedding_dim : 16;
  const std::int64_t buckets = config.hash_buckets ? config.hash_buckets : 100000;
  GraphBuilder b;
  const NumericInput dense = numeric_input(b, config, kName);
  const IdInputs sparse = id_inputs(b, config, kName, "sparse");
  Output label = column_placeholder(b, config, kName, "label", DType::Float32);
  std::vector<IdColumn> columns = id_columns(b, config, kName, "sparse", sparse, buckets, "table");
  require_one_width(kName, columns, dim);
  const RowWeights weights = row_weights(b, config);

  std::vector<Output> vectors;
  std::int64_t bottom = dense.width;
  if (dense.values)
    vectors.push_back(mlp_layers(b, "bottom", *dense.values, bottom, {64, dim}, 0, LayerInit::Dlrm));
  const TableInit init = [](std::int64_t rows, std::int64_t) {
    return uniform_init(1 / std::sqrt(static_cast<double>(rows)));
  };
  for (Output& row : column_embeddings(b, config, columns, dim, init)) vectors.push_back(std::move(row));
  const auto n = static_cast<std::int64_t>(vectors.size());
  if (n < 2) throw InvalidArgument("model 'dlrm' multiplies pairs of columns, and the input has one column");
  Output all = b.op("Pack", vectors, {{"N", n}, {"axis", 1}});                           // [B, n, dim]
  Output dots = b.op("BatchMatMulV2", {all, all}, {{"adj_x", false}, {"adj_y", true}});  // [B, n, n]
  std::vector<std::int32_t> pairs;                                                       // below the diagonal
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < i; ++j) pairs.push_back(static_cast<std::int32_t>(i * n + j));
  const auto pair_count = static_cast<std::int64_t>(pairs.size());
  Output chosen = b.op("GatherV2", {b.reshape(dots, {-1, n * n}),
                                    b.constant(Tensor::from<std::int32_t>(Shape{pair_count}, pairs), "pairs"),
                                    b.constant(Tensor::scalar<std::int32_t>(1), "pair_axis")});  // [B, pairs]
  std::int64_t width = (dense.values ? dim : 0) + pair_count;
  const Output x = dense.values ? b.concat({vectors[0], chosen}, 1) : chosen;
  Output h = mlp_layers(b, "top", x, width, top, config.dropout, LayerInit::Dlrm);
  Output logits = logit(b, "logit", h, width, LayerInit::Dlrm);
  return finish_model(b, mean_sigmoid_loss(b, logits, label, weights), logits,
                      sparse.read_between(dense.read_beside(), {"label"}), "label", Prediction::Probability,
                      weights);
}

}  // namespace braid
