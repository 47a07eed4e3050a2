// DCN v2 (Wang et al. 2021), parallel form: cross layers beside an MLP over x_0 = [dense, embeddings].
//   x_{l+1} = x_0 * (W_l x_l + b_l) + x_l;   y = w [x_L, MLP(x_0)]
// Columns: "dense" [B, D] float (or none), "sparse" [B, C] int64 buckets, "label" [B] in {0, 1}. Three cross
// layers.
//
// Initial values are those of TorchRec, which has MLPerf's DLRM-DCNv2: cross layers Glorot normal with biases
// of zeros; tables uniform in +-1 / sqrt(rows); kernels and biases of other layers uniform in +-1 / sqrt(in).
#include <cmath>

#include "models/common.h"
#include "models/id_columns.h"

namespace braid {

ModelGraph build_dcn_v2(const ModelConfig& config) {
  constexpr const char* kName = "dcn_v2";
  constexpr int kCrossLayers = 3;
  const std::vector<std::int64_t> hidden =
      config.hidden.empty() ? std::vector<std::int64_t>{128, 64} : config.hidden;
  const std::int64_t dim = config.embedding_dim ? config.embedding_dim : 8;
  const std::int64_t buckets = config.hash_buckets ? config.hash_buckets : 100000;
  GraphBuilder b;
  const NumericInput dense = numeric_input(b, config, kName);
  const IdInputs sparse = id_inputs(b, config, kName, "sparse");
  Output label = column_placeholder(b, config, kName, "label", DType::Float32);
  const std::vector<IdColumn> columns = id_columns(b, config, kName, "sparse", sparse, buckets);
  const std::int64_t width = dense.width + width_of(columns, dim);
  const RowWeights weights = row_weights(b, config);

  const TableInit init = [](std::int64_t rows, std::int64_t) {
    return uniform_init(1 / std::sqrt(static_cast<double>(rows)));
  };
  const std::vector<Output> parts = column_embeddings(b, config, columns, dim, init);
  const Output x0 = dense.beside(b, parts);
  Output cross = x0;
  for (int l = 0; l < kCrossLayers; ++l) {
    const Output product =
        dense_layer(b, "cross" + std::to_string(l), cross, width, width, false, LayerInit::GlorotNormal);
    cross = b.add(b.mul(x0, product), cross);
  }
  std::int64_t deep_width = width;
  const Output deep = mlp_layers(b, "deep", x0, deep_width, hidden, config.dropout, LayerInit::Linear);
  const Output logits = logit(b, "logit", b.concat({cross, deep}, 1), width + deep_width, LayerInit::Linear);
  return finish_model(b, mean_sigmoid_loss(b, logits, label, weights), logits,
                      sparse.read_between(dense.read_beside(), {"label"}), "label", Prediction::Probability,
                      weights);
}

}  // namespace braid
