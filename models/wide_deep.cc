// Wide & deep (Cheng et al. 2016): a linear part over all columns beside an MLP over embeddings and dense
// columns; their logits add. Columns: "dense" [B, D] float (or none), "sparse" [B, C] int64 buckets, "label"
// [B] in {0, 1}. A list has one table a part: the deep part takes the mean of its rows, the wide part their
// sum, which are the combiners of TensorFlow's columns.
//
// Initial values, as TensorFlow's DNNLinearCombinedClassifier has them: the wide part zeros (a linear model
// is convex, and anything else is noise on the logits that rare ids keep); embeddings truncated normal of
// deviation 1 / sqrt(dim) (embedding_column); layers Glorot uniform, biases zeros.
#include <cmath>

#include "models/common.h"
#include "models/id_columns.h"

namespace braid {

ModelGraph build_wide_deep(const ModelConfig& config) {
  constexpr const char* kName = "wide_deep";
  const std::vector<std::int64_t> hidden =
      config.hidden.empty() ? std::vector<std::int64_t>{128, 64} : config.hidden;
  const std::int64_t dim = config.embedding_dim ? config.embedding_dim : 8;
  const std::int64_t buckets = config.hash_buckets ? config.hash_buckets : 1000;
  GraphBuilder b;
  const NumericInput dense = numeric_input(b, config, kName);
  const IdInputs sparse = id_inputs(b, config, kName, "sparse");
  Output label = column_placeholder(b, config, kName, "label", DType::Float32);
  const RowWeights weights = row_weights(b, config);

  const std::vector<IdColumn> columns = id_columns(b, config, kName, "sparse", sparse, buckets);
  Output wide, deep;
  {
    NameScope name(b, "wide");
    std::vector<Output> terms;
    if (dense.values)
      terms.push_back(dense_layer(b, "dense", *dense.values, dense.width, 1, false, LayerInit::Zeros));
    for (IdColumn column : columns) {
      column.table.init = 0;  // that of the deep part
      terms.push_back(embedded(b, config, column, 1, InitSpec{}, Combiner::Sum));
    }
    wide = b.op("AddN", terms, {{"N", static_cast<std::int64_t>(terms.size())}});
  }
  {
    NameScope name(b, "deep");
    const TableInit init = [](std::int64_t, std::int64_t width) {
      return InitSpec{InitKind::TruncatedNormal, 0.0F, 1.0F / std::sqrt(static_cast<float>(width))};
    };
    const Output x = dense.beside(b, column_embeddings(b, config, columns, dim, init));
    std::int64_t width = dense.width + width_of(columns, dim);
    deep = mlp_layers(b, "mlp", x, width, hidden, config.dropout);
    deep = b.dense("logit", deep, width, 1, false);
  }
  Output logits = b.reshape(b.add(wide, deep), {-1});
  return finish_model(b, mean_sigmoid_loss(b, logits, label, weights), logits,
                      sparse.read_between(dense.read_beside(), {"label"}), "label", Prediction::Probability,
                      weights);
}

}  // namespace braid
