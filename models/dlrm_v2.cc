// DLRM-v2, the recommender of MLPerf Training 3.0 to 6.0: DLRM with columns of several ids and a deep cross
// network of low rank in the place of the dots of pairs.
//   x_0 = [MLP_bottom(dense), sum of the rows of column 0, ..., of column 25]
//   x_{l+1} = x_0 * (x_l V_l W_l + b_l) + x_l;   y = MLP_top(x_L)
// Columns: "dense" [B, D] float, "sparse" [B, sum of lengths] ids, "label" [B] in {0, 1}. The fields of
// "sparse" say how many ids each column has and how many rows its table. `hidden` gives the widths of the top
// MLP, `bottom` those of the bottom one before its last layer, which is as wide as a row of a table.
//
// Initial values are those of TorchRec's DLRM_DCN: tables uniform in +-1 / sqrt(rows), kernels and biases of
// both MLPs uniform in +-1 / sqrt(in), V and W Glorot normal, b zeros. Sources: the benchmark's reference
// (mlcommons/training, recommendation_v2/torchrec_dlrm) and Wang et al. 2021 for the cross network.
#include <cmath>

#include "models/common.h"
#include "models/id_columns.h"

namespace braid {
namespace {

std::vector<std::int64_t> or_default(const std::vector<std::int64_t>& given,
                                     std::vector<std::int64_t> fallback) {
  return given.empty() ? std::move(fallback) : given;
}

/// x_0 * (x V W + b) + x.
Output low_rank_cross(GraphBuilder& b, const std::string& name, const Output& x0, const Output& x,
                      std::int64_t width, std::int64_t rank) {
  const NameScope scope(b, name);
  const auto kernel = [&](const char* of, std::int64_t in, std::int64_t out) {
    return b.read(b.variable(of, Shape{in, out},
                             {.init = normal_init(std::sqrt(2.0 / static_cast<double>(in + out)))}));
  };
  const Output low = b.matmul(x, kernel("v", width, rank));
  const Output bias = b.read(b.variable("bias", Shape{width}, {.init = {}}));
  const Output product = b.bias_add(b.matmul(low, kernel("w", rank, width)), bias);
  return b.add(b.mul(x0, product), x);
}

}  // namespace

ModelGraph build_dlrm_v2(const ModelConfig& config) {
  constexpr const char* kName = "dlrm_v2";
  const std::int64_t dim = config.embedding_dim ? config.embedding_dim : 128;
  const std::int64_t buckets = config.hash_buckets ? config.hash_buckets : 100000;
  const std::int64_t layers = config.cross_layers ? config.cross_layers : 3;
  const std::int64_t rank = config.cross_rank ? config.cross_rank : 512;
  const std::vector<std::int64_t> top = or_default(config.hidden, {1024, 1024, 512, 256});
  std::vector<std::int64_t> bottom = or_default(config.bottom, {512, 256});
  bottom.push_back(dim);
  GraphBuilder b;
  const Output dense = column_placeholder(b, config, kName, "dense", DType::Float32);
  const IdInputs sparse = id_inputs(b, config, kName, "sparse", id_type(config, "sparse"));
  const Output label = column_placeholder(b, config, kName, "label", DType::Float32);
  const std::vector<IdColumn> columns = list_columns(b, config, kName, "sparse", sparse, buckets);
  const RowWeights weights = row_weights(b, config);

  const TableInit init = [](std::int64_t rows, std::int64_t) {
    return uniform_init(1 / std::sqrt(static_cast<double>(rows)));
  };
  std::int64_t bottom_width = row_shape(config, kName, "dense")[0];
  std::vector<Output> parts{mlp_layers(b, "bottom", dense, bottom_width, bottom, 0, LayerInit::Linear)};
  make_query_tables(b, config, columns, dim, init);
  for (const IdColumn& column : columns)
    parts.push_back(pooled(b, config, column, width_of(column, dim),
                           table_init(config, init(column.rows, dim)), Combiner::Sum));
  const Output x0 = b.concat(parts, 1);
  std::int64_t width = dim + width_of(columns, dim);
  Output x = x0;
  for (std::int64_t l = 0; l < layers; ++l)
    x = low_rank_cross(b, "cross" + std::to_string(l), x0, x, width, rank);
  x = mlp_layers(b, "top", x, width, top, config.dropout, LayerInit::Linear);
  const Output logits = logit(b, "logit", x, width, LayerInit::Linear);
  return finish_model(b, mean_sigmoid_loss(b, logits, label, weights), logits,
                      sparse.read_between({"dense"}, {"label"}), "label", Prediction::Probability, weights);
}

}  // namespace braid
