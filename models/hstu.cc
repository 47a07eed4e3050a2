// HSTU, the generative recommender of MLPerf Training 6.1 (Zhai et al. 2024): layers of attention over a
// user's history say what the user makes of a candidate. All tokens of a batch lie side by side, ragged.
//   token = MLP(row of its first table) + MLP(rows of the others) + MLP(bits of its action)
//   x = sqrt(D) [context tokens, history, candidate] + P[position] + T[sqrt(age in minutes)]
//   layer: [u, v, q, k] = LN(x) W + b, u = silu(u);   o = A v, A = silu(q k^T / sqrt(d)) / N, causal
//          x = x + [u, o, u * LN(o)] W_o
//   user = LN([x of the candidate, dense] W + b);   item = MLP(rows of the candidate);   y = MLP(user * item)
// Of the last layer everything but keys and values is computed for candidates alone.
// MLPs are Linear, x sigmoid(LN(x)), Linear, LN; that of y is Linear, x sigmoid(LN(x)), Linear. The loss is
// 0.2 times the cross entropy. N is the longest sequence of the batch: several workers multiply A v by what
// theirs is of the longest of all, where the input knows it.
// Columns: "history", one ragged column for each table; "candidate" [B, tables], whose columns share them;
// "sparse" [B, C] context, a token each; "action", one ragged column of bits, whose weights are ages in
// seconds; "dense" [B, n], of the candidate; "label" [B] in {0, 1}. The first two and the last are needed.
//
// `hidden` is the width of the tokens' MLPs. Dropout is `dropout` on x, half of it in the layers. Initial
// values are those of the reference (mlcommons/training, recommendation/generative_recommenders): tables
// uniform in +-1 / sqrt(rows), layers Glorot normal, those of attention, item and y Glorot uniform.
#include <cmath>
#include <optional>

#include "base/error.h"
#include "models/common.h"
#include "models/hstu_columns.h"
#include "models/hstu_layer.h"

namespace braid {
namespace {

constexpr const char* kName = "hstu";
constexpr std::int64_t kPositions = 8192, kAges = 2048, kBitWidth = 8;
constexpr float kLossWeight = 0.2F;

struct HstuSizes {
  std::int64_t dim = 0, heads = 0, layers = 0, hidden = 0;
  double dropout = 0;
};

Output scalar(GraphBuilder& b, float value, const char* name) {
  return b.constant(Tensor::scalar(value), name);
}

/// x sigmoid(LN(x)).
Output swish_norm(GraphBuilder& b, const Output& x, std::int64_t dim) {
  return b.mul(x, b.op("Sigmoid", {layer_norm(b, "swish", x, dim)}));
}

Output mlp(GraphBuilder& b, const std::string& name, const Output& x, std::int64_t in, std::int64_t hidden,
           std::int64_t out, LayerInit init) {
  const NameScope scope(b, name);
  const Output inner = swish_norm(b, dense_layer(b, "inner", x, in, hidden, false, init), hidden);
  return layer_norm(b, "norm", dense_layer(b, "outer", inner, hidden, out, false, init), out);
}

Output rows_at(GraphBuilder& b, const Output& values, const Output& indices) {
  return b.op("GatherV2", {values, indices, b.constant(Tensor::scalar<std::int32_t>(0), "axis")});
}

/// Where the last value of each row of the batch is.
Output last_places(GraphBuilder& b, const Output& offsets) {
  const auto vector_of = [&](std::int32_t value, const char* name) {
    return b.constant(Tensor::from<std::int32_t>(Shape{1}, std::vector{value}), name);
  };
  const Output ends = b.op("Slice", {offsets, vector_of(1, "first"), vector_of(-1, "all")});
  return b.op("Sub", {ends, b.constant(Tensor::scalar<std::int64_t>(1), "one")}, {}, "last");
}

/// What the action's bits and, for the candidate, a vector of its own say: [n, D].
Output action_content(GraphBuilder& b, HstuColumns& columns, const HstuSizes& sizes) {
  const NameScope scope(b, "action");
  const std::int64_t ids = columns.action()->rows;
  std::int64_t bits = 0;
  while ((std::int64_t{1} << bits) < ids) ++bits;
  const std::int64_t width = bits * kBitWidth;
  Tensor sets = Tensor::zeros(DType::Float32, Shape{ids, bits});
  for (std::int64_t id = 0; id < ids; ++id)
    for (std::int64_t bit = 0; bit < bits; ++bit)
      sets.data<float>()[static_cast<std::size_t>(id * bits + bit)] = static_cast<float>(id >> bit & 1);
  const Output axis = b.constant(Tensor::scalar<std::int32_t>(0), "axis");
  const Output of_token =
      b.op("GatherV2", {b.constant(sets, "sets"), columns.in_room(columns.action()->ids), axis});
  const Output rows = b.read(b.variable("bits", Shape{bits, kBitWidth}, {.init = normal_init(0.1)}));
  const Output spread = b.mul(b.reshape(of_token, {-1, bits, 1}), b.reshape(rows, {1, bits, kBitWidth}));
  const Output own = b.read(b.variable("candidate", Shape{1, width}, {.init = normal_init(0.1)}));
  const Ragged all =
      with_candidates(b, {b.reshape(spread, {-1, width}), columns.offsets()}, b.matmul(columns.ones(), own));
  return mlp(b, "mlp", all.values, width, sizes.hidden, sizes.dim, LayerInit::GlorotNormal);
}

/// Rows of a variable that learns as a whole, as layers do: through the reshape its gradient is dense.
Output learned_rows(GraphBuilder& b, const Output& variable, const Output& indices, const HstuSizes& sizes) {
  return rows_at(b, b.reshape(b.read(variable), {-1, sizes.dim}), indices);
}

/// Rows of learned vectors by the tokens' ages, sqrt of minutes; context tokens are the oldest.
Output age_rows(GraphBuilder& b, HstuColumns& columns, const HstuSizes& sizes) {
  const NameScope scope(b, "age");
  const std::int64_t context = std::ssize(columns.context());
  const Output none = b.reshape(b.op("Sub", {columns.ones(), columns.ones()}), {-1});
  Ragged ages = with_candidates(b, {columns.in_room(*columns.action()->weights), columns.offsets()}, none);
  if (context > 0) {
    const float oldest = 61.0F * kAges * kAges;
    const Output old =
        b.mul(columns.ones(),
              b.constant(Tensor::from<float>(Shape{1, context},
                                             std::vector<float>(static_cast<std::size_t>(context), oldest)),
                         "oldest"));
    ages.values =
        b.op("braid.RaggedConcat", {b.reshape(old, {-1}), ages.values, ages.offsets}, {{"a_width", context}});
  }
  const Output seconds = b.op("Maximum", {ages.values, scalar(b, 1e-6F, "least")});
  const Output root = b.op("Sqrt", {b.op("RealDiv", {seconds, scalar(b, 60, "minute")})});
  const Output bucket = b.op("Cast", {b.op("Minimum", {root, scalar(b, kAges, "most")})},
                             {{"SrcT", DType::Float32}, {"DstT", DType::Int64}});
  const double bound = 1 / std::sqrt(static_cast<double>(kAges + 1));
  const Output table = b.variable("buckets", Shape{kAges + 1, sizes.dim}, {.init = uniform_init(bound)});
  return learned_rows(b, table, bucket, sizes);
}

/// The tokens' places from the end, those of the context from the front.
Output position_rows(GraphBuilder& b, const Ragged& layout, std::int64_t context, const HstuSizes& sizes) {
  const NameScope scope(b, "position");
  const double bound = 1 / std::sqrt(static_cast<double>(kPositions));
  const Output table = b.variable("places", Shape{kPositions, sizes.dim}, {.init = uniform_init(bound)});
  const Output places = b.op("braid.RaggedPositions", {layout.offsets, layout.values},
                             {{"prefix", context}, {"from_end", true}, {"limit", kPositions}});
  return learned_rows(b, table, places, sizes);
}

/// Context columns as tokens: [B C, D].
Output context_tokens(GraphBuilder& b, HstuColumns& columns, const HstuSizes& sizes) {
  std::vector<Output> tokens;
  for (std::size_t c = 0; c < columns.context().size(); ++c) {
    const Output rows = columns.context_rows(c);
    const NameScope scope(b, "context");
    tokens.push_back(dense_layer(b, columns.context()[c].name, rows, sizes.dim, sizes.dim, false,
                                 LayerInit::GlorotNormal));
  }
  return b.reshape(b.concat(tokens, 1), {-1, sizes.dim});
}

/// [B, D] -> [B].
Output head(GraphBuilder& b, const Output& x, std::int64_t dim) {
  const NameScope scope(b, "head");
  const Output inner =
      swish_norm(b, dense_layer(b, "inner", x, dim, dim, false, LayerInit::GlorotUniform), dim);
  return logit(b, "logit", inner, dim, LayerInit::GlorotUniform);
}

HstuSizes sizes_of(const ModelConfig& config) {
  HstuSizes sizes{config.embedding_dim ? config.embedding_dim : 512, config.heads ? config.heads : 4,
                  config.layers ? config.layers : 3, config.hidden.empty() ? 256 : config.hidden[0],
                  config.dropout};
  if (config.hidden.size() > 1)
    throw InvalidArgument("model 'hstu': hidden is one width, that of the tokens' MLPs, got " +
                          std::to_string(config.hidden.size()));
  if (sizes.dim % sizes.heads != 0)
    throw InvalidArgument("model 'hstu': embedding_dim must be a multiple of " + std::to_string(sizes.heads) +
                          " heads (model.heads), got " + std::to_string(sizes.dim));
  return sizes;
}

/// Products of a token and of a pair of tokens, over 2 `dim`. All columns of the history have the token's
/// length.
RowWork row_work(const HstuSizes& sizes, const HstuColumns& columns) {
  const auto tables = static_cast<std::int64_t>(columns.tables());
  const std::int64_t ragged = tables + (columns.action() ? 1 : 0);
  const std::int64_t whole = sizes.layers - 1;  // the last one has keys and values alone
  const std::int64_t token = sizes.dim * (7 * whole + 2) + sizes.hidden * (tables + (tables > 1 ? 2 : 1));
  return {token, ragged * whole};
}

}  // namespace

ModelGraph build_hstu(const ModelConfig& config) {
  const HstuSizes sizes = sizes_of(config);
  const std::int64_t dim = sizes.dim;
  GraphBuilder b;
  HstuColumns columns(b, config, dim, config.hash_buckets ? config.hash_buckets : 100000);
  const Output label = column_placeholder(b, config, kName, "label", DType::Float32);
  const RowWeights weights = row_weights(b, config);

  std::vector<Output> rows;
  Ragged ids;
  for (std::size_t t = columns.tables(); t-- > 0;) {
    ids = columns.ids(t);  // at last those of the first table
    rows.insert(rows.begin(), columns.rows(t, ids.values));
  }
  const Ragged layout = columns.layout(ids);
  const std::int64_t further = std::ssize(rows) - 1;
  Output content = mlp(b, "first", rows[0], dim, sizes.hidden, dim, LayerInit::GlorotNormal);
  if (further > 0)
    content = b.add(content, mlp(b, "further", b.concat({rows.begin() + 1, rows.end()}, 1), further * dim,
                                 sizes.hidden, dim, LayerInit::GlorotNormal));
  if (columns.action()) content = b.add(content, action_content(b, columns, sizes));
  const Output last_token = last_places(b, ids.offsets);

  const std::int64_t context = std::ssize(columns.context());
  Output x = content;
  if (context > 0)
    x = b.op("braid.RaggedConcat", {context_tokens(b, columns, sizes), content, ids.offsets},
             {{"a_width", context}}, "sequence");
  x = b.add(b.mul(x, scalar(b, std::sqrt(static_cast<float>(dim)), "root")),
            position_rows(b, layout, context, sizes));
  if (columns.action() && columns.action()->weights) x = b.add(x, age_rows(b, columns, sizes));
  x = dropout(b, x, sizes.dropout);
  std::optional<Output> share;
  if (config.several_workers) share = columns.longest_share(context + 1);
  const Output last = last_places(b, layout.offsets);
  for (std::int64_t l = 0; l < sizes.layers; ++l) {
    const NameScope scope(b, "layer" + std::to_string(l));
    const HstuLayer layer{dim, sizes.heads, sizes.dropout / 2, share};
    x = l + 1 < sizes.layers ? hstu_layer(b, x, layout.offsets, layer)
                             : hstu_last_layer(b, x, layout.offsets, last, layer);
  }

  Output user = x;
  if (columns.dense()) user = b.concat({user, *columns.dense()}, 1);
  user = dense_layer(b, "user", user, dim + columns.dense_width(), dim, false, LayerInit::GlorotNormal);
  user = layer_norm(b, "user/norm", user, dim);
  std::vector<Output> candidate;
  for (const Output& of_table : rows) candidate.push_back(rows_at(b, of_table, last_token));
  const Output item = mlp(b, "item", candidate.size() == 1 ? candidate[0] : b.concat(candidate, 1),
                          dim * std::ssize(rows), dim, dim, LayerInit::GlorotUniform);
  const Output logits = head(b, b.mul(user, item), dim);
  const Output loss =
      b.mul(mean_sigmoid_loss(b, logits, label, weights), scalar(b, kLossWeight, "loss_weight"));
  std::vector<std::string> read = columns.read();
  read.push_back("label");
  ModelGraph model = finish_model(b, loss, logits, read, "label", Prediction::Probability, weights);
  model.row_work = row_work(sizes, columns);
  return model;
}

}  // namespace braid
