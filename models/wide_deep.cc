// Wide & deep (Cheng et al. 2016): a linear part over all columns beside an MLP over embeddings and dense
// columns; their logits add. Columns: "dense" [B, D] float, "sparse" [B, C] int64 buckets, "label" [B] in {0,
// 1}. The two parts are on two streams under USER.
#include "models/common.h"

namespace braid {

ModelGraph build_wide_deep(const ModelConfig& config) {
  constexpr const char* kName = "wide_deep";
  const std::vector<std::int64_t> hidden =
      config.hidden.empty() ? std::vector<std::int64_t>{128, 64} : config.hidden;
  const std::int64_t dim = config.embedding_dim ? config.embedding_dim : 8;
  const std::int64_t buckets = config.hash_buckets ? config.hash_buckets : 1000;
  GraphBuilder b;
  Output dense = column_placeholder(b, config, kName, "dense", DType::Float32);
  Output sparse = column_placeholder(b, config, kName, "sparse", DType::Int64);
  Output label = column_placeholder(b, config, kName, "label", DType::Float32);
  const std::int64_t dense_columns = row_shape(config, kName, "dense")[0];
  const std::int64_t sparse_columns = row_shape(config, kName, "sparse")[0];

  Output columns = b.op("Unpack", {sparse}, {{"num", sparse_columns}, {"axis", 1}}, "columns");
  Output wide, deep;
  {
    NameScope name(b, "wide");
    StreamScope stream(b, 1);
    wide = b.dense("dense", dense, dense_columns, 1, false);
    std::vector<Output> terms{wide};
    for (std::int64_t c = 0; c < sparse_columns; ++c)
      terms.push_back(embedding(b, "c" + std::to_string(c), {columns.node, static_cast<int>(c)}, buckets, 1,
                                config.sparse_tables));
    wide = b.op("AddN", terms, {{"N", static_cast<std::int64_t>(terms.size())}});
  }
  {
    NameScope name(b, "deep");
    StreamScope stream(b, 0);
    std::vector<Output> parts{dense};
    for (std::int64_t c = 0; c < sparse_columns; ++c)
      parts.push_back(embedding(b, "c" + std::to_string(c), {columns.node, static_cast<int>(c)}, buckets, dim,
                                config.sparse_tables, config.embedding_init));
    std::int64_t width = dense_columns + sparse_columns * dim;
    deep = mlp_layers(b, "mlp", b.concat(parts, 1), width, hidden, config.dropout);
    deep = b.dense("logit", deep, width, 1, false);
  }
  Output logits = b.reshape(b.add(wide, deep), {-1});
  return finish_model(b, mean_sigmoid_loss(b, logits, label), logits, {"dense", "sparse", "label"}, "label",
                      Prediction::Probability);
}

}  // namespace braid
