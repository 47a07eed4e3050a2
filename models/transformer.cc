// A small transformer encoder (Vaswani et al. 2017) that classifies sequences: embeddings of tokens and
// places, layers of self-attention and a feed-forward network, the mean over the sequence, logits. Layers are
// in pre-norm order (Xiong et al. 2020), which trains without warm-up:
//   x = x + Attention(LN(x));   x = x + W_2 relu(W_1 LN(x))
//   Attention: softmax(Q K^T / sqrt(d)) V for each of four heads;   LN(x) = g (x - m) / sqrt(v + 1e-5) + s
// Dropout is applied to the sum of the embeddings and to what each layer adds to x. With model.mixture the
// feed-forward networks are sparse mixtures of experts (mixture.h), whose load-balancing losses are added.
// Columns: "tokens" [B, L] int64, "label" [B] int64. `hidden` gives the feed-forward width of each layer.
//
// Initial values are those of fairseq: tokens and places normal of deviation 1 / sqrt(dim), layers Glorot
// uniform with biases of zeros, norms the identity. model.embedding_init is for tokens and places.
#include <cmath>

#include "base/error.h"
#include "models/common.h"
#include "models/id_columns.h"
#include "models/mixture.h"

namespace braid {
namespace {

constexpr std::int64_t kHeads = 4;

/// Sizes that all layers share.
struct Sizes {
  std::int64_t length = 0, dim = 0;
  std::int64_t head() const { return dim / kHeads; }
};

/// [rows, dim] -> [B, heads, L, head]
Output heads_of(GraphBuilder& b, const Output& x, const Sizes& sizes) {
  const std::vector<std::int32_t> order{0, 2, 1, 3};
  return b.op("Transpose", {b.reshape(x, {-1, sizes.length, kHeads, sizes.head()}),
                            b.constant(Tensor::from<std::int32_t>(Shape{4}, order), "order")});
}

/// x [B L, dim] -> [B L, dim]
Output attention(GraphBuilder& b, const Output& x, const Sizes& sizes) {
  const NameScope scope(b, "attention");
  const Output query = heads_of(b, b.dense("query", x, sizes.dim, sizes.dim, false), sizes);
  const Output key = heads_of(b, b.dense("key", x, sizes.dim, sizes.dim, false), sizes);
  const Output value = heads_of(b, b.dense("value", x, sizes.dim, sizes.dim, false), sizes);
  const Output dots = b.op("BatchMatMulV2", {query, key}, {{"adj_x", false}, {"adj_y", true}});
  const float scale = 1.0F / std::sqrt(static_cast<float>(sizes.head()));
  const Output weights = b.op("Softmax", {b.mul(dots, b.constant(Tensor::scalar(scale), "scale"))});
  const Output mixed = b.op("BatchMatMulV2", {weights, value});  // [B, heads, L, head]
  const std::vector<std::int32_t> order{0, 2, 1, 3};
  const Output joined =
      b.reshape(b.op("Transpose", {mixed, b.constant(Tensor::from<std::int32_t>(Shape{4}, order), "order")}),
                {-1, sizes.dim});
  return b.dense("output", joined, sizes.dim, sizes.dim, false);
}

/// x [B L, dim] -> [B L, dim]; appends what a mixture adds to the loss.
Output feed_forward(GraphBuilder& b, const ModelConfig& config, const Output& x, std::int64_t dim,
                    std::int64_t hidden, std::vector<Output>& balances) {
  if (config.mixture.experts == 0)
    return b.dense("outer", b.dense("inner", x, dim, hidden, true), hidden, dim, false);
  const MixtureLayer layer = mixture_layer(b, "experts", x, dim, hidden, config.mixture);
  balances.push_back(layer.balance);
  return layer.y;
}

Output with_balances(GraphBuilder& b, const ModelConfig& config, const Output& loss,
                     const std::vector<Output>& balances) {
  if (balances.empty() || config.mixture.balance == 0) return loss;
  const Output sum = b.op("AddN", balances, {{"N", static_cast<std::int64_t>(balances.size())}}, "balance");
  const Output factor = b.constant(Tensor::scalar(static_cast<float>(config.mixture.balance)), "factor");
  return b.add(loss, b.mul(sum, factor));
}

}  // namespace

ModelGraph build_transformer(const ModelConfig& config) {
  constexpr const char* kName = "transformer";
  const std::vector<std::int64_t> layers =
      config.hidden.empty() ? std::vector<std::int64_t>{128, 128} : config.hidden;
  const std::int64_t dim = config.embedding_dim ? config.embedding_dim : 64;
  const std::int64_t buckets = ids_of(config, "tokens", config.hash_buckets ? config.hash_buckets : 10000);
  const std::int64_t classes = config.classes ? config.classes : 2;
  if (dim % kHeads != 0)
    throw InvalidArgument("model 'transformer': embedding_dim must be a multiple of " +
                          std::to_string(kHeads) + " heads, got " + std::to_string(dim));
  GraphBuilder b;
  Output tokens = column_placeholder(b, config, kName, "tokens", DType::Int64);
  Output label = column_placeholder(b, config, kName, "label", DType::Int64);
  const RowWeights weights = row_weights(b, config);
  const Sizes sizes{row_shape(config, kName, "tokens")[0], dim};

  const InitSpec init = table_init(config, normal_init(1 / std::sqrt(static_cast<double>(dim))));
  const Output table = embedding_table(b, "tokens_table", buckets, dim, config.sparse_tables, init);
  const Output places = b.read(b.variable("places", Shape{sizes.length, dim}, {.init = init}));
  const Output words = b.reshape(b.gather(table, b.reshape(tokens, {-1})), {-1, sizes.length, dim});
  Output x = dropout(b, b.reshape(b.add(words, places), {-1, dim}), config.dropout);  // [B L, dim]
  std::vector<Output> balances;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const NameScope scope(b, "layer" + std::to_string(l));
    x = b.add(x, dropout(b, attention(b, layer_norm(b, "norm0", x, dim), sizes), config.dropout));
    const Output added = feed_forward(b, config, layer_norm(b, "norm1", x, dim), dim, layers[l], balances);
    x = b.add(x, dropout(b, added, config.dropout));
  }
  const Output normal = b.reshape(layer_norm(b, "norm", x, dim), {-1, sizes.length, dim});
  const Output logits = b.dense("logits", b.reduce_mean(normal, {1}), dim, classes, false);
  const Output loss =
      with_balances(b, config, mean_softmax_loss(b, logits, label, classes, weights), balances);
  return finish_model(b, loss, logits, {"tokens", "label"}, "label", Prediction::Classes, weights);
}

}  // namespace braid
