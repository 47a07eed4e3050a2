// Pieces that several models are made of.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/init.h"
#include "engine/builder/graph_builder.h"
#include "models/model.h"

namespace braid {

/// Shape of one row of an input column. Throws: InvalidArgument naming model and column when the data has no
/// such column.
const Shape& row_shape(const ModelConfig& config, const std::string& model, const std::string& column);

/// A placeholder [?, row...] named like the column.
Output column_placeholder(GraphBuilder& builder, const ModelConfig& config, const std::string& model,
                          const std::string& column, DType dtype);

/// x with each element 0 with probability `rate`, else divided by 1 - rate; x itself when rate is 0.
Output dropout(GraphBuilder& builder, const Output& x, double rate);

/// How a layer begins: its kernel [in, out], and its bias [out].
enum class LayerInit {
  GlorotUniform,  // uniform in +-sqrt(6 / (in + out)); zeros (Keras' Dense)
  GlorotNormal,   // normal of deviation sqrt(2 / (in + out)); zeros
  Dlrm,           // the same; normal of deviation sqrt(1 / out)
  Linear,         // uniform in +-1 / sqrt(in); the same (torch.nn.Linear)
  Zeros,          // zeros; zeros
};

/// b.dense() with other initial values.
Output dense_layer(GraphBuilder& builder, const std::string& name, const Output& x, std::int64_t in,
                   std::int64_t out, bool with_relu, LayerInit init);

/// (x - mean) / sqrt(variance + epsilon) of each row of x [rows, dim], times "<name>/scale" [dim] (ones) plus
/// "<name>/shift" [dim] (zeros).
Output layer_norm(GraphBuilder& builder, const std::string& name, const Output& x, std::int64_t dim,
                  float epsilon = 1e-5F);
/// The same in two steps, for several x.
struct NormWeights {
  std::string name;
  Output scale, shift;
};
NormWeights norm_weights(GraphBuilder& builder, const std::string& name, std::int64_t dim);
Output layer_norm(GraphBuilder& builder, const NormWeights& weights, const Output& x, float epsilon = 1e-5F);

/// Fully connected layers with ReLU, and dropout behind each: "<name>/layer0", ... Returns the last layer's
/// output; `width` becomes its width.
Output mlp_layers(GraphBuilder& builder, const std::string& name, Output x, std::int64_t& width,
                  const std::vector<std::int64_t>& hidden, double dropout_rate = 0,
                  LayerInit init = LayerInit::GlorotUniform);

InitSpec uniform_init(double range);                           // in +-range
InitSpec normal_init(double deviation);                        // around 0
InitSpec glorot_uniform(std::int64_t rows, std::int64_t dim);  // uniform in +-sqrt(6 / (rows + dim))
/// What the job says (model.embedding_init), else what is the model's own.
InitSpec table_init(const ModelConfig& config, const InitSpec& models_own);

/// A table "<name>/table" [rows, dim] for b.gather.
Output embedding_table(GraphBuilder& builder, const std::string& name, std::int64_t rows, std::int64_t dim,
                       bool sparse, const InitSpec& init, const std::string& former_name = {});

/// Such a table and the rows of `ids` [B] in it.
Output embedding(GraphBuilder& builder, const std::string& name, const Output& ids, std::int64_t rows,
                 std::int64_t dim, bool sparse, const InitSpec& init);

/// A layer without activation down to one number a row: [B, width] -> [B].
Output logit(GraphBuilder& builder, const std::string& name, const Output& x, std::int64_t width,
             LayerInit init = LayerInit::GlorotUniform);

/// What the loss of each row is multiplied by; neither: nothing.
struct RowWeights {
  std::optional<Output> column;  // [B], the input's column of weights
  std::vector<double> of_class;  // by label
};

/// Those that input and job say. The column becomes a placeholder, so call it outside of name scopes.
RowWeights row_weights(GraphBuilder& builder, const ModelConfig& config);

// Losses of a batch: the sum of the rows' losses, each times its weights, divided by the number of rows (not
// by the sum of the weights), as in Keras. Throws: InvalidArgument unless there is a class weight for each
// class.

/// Sigmoid cross entropy of logits [B] and labels [B] in {0, 1}, which have two class weights.
Output mean_sigmoid_loss(GraphBuilder& builder, const Output& logits, const Output& labels,
                         const RowWeights& weights = {});
/// Softmax cross entropy of logits [B, classes] and labels [B].
Output mean_softmax_loss(GraphBuilder& builder, const Output& logits, const Output& labels,
                         std::int64_t classes, const RowWeights& weights = {});
/// Squared differences of values [B, 1]. Class weights have no meaning here.
Output mean_squared_loss(GraphBuilder& builder, const Output& values, const Output& truths,
                         const RowWeights& weights = {});

/// Finishes a model: names what it predicts (ModelOutput), and moves the graph out of the builder. The column
/// of weights is added to `columns`. `tasks`: of a model of several.
ModelGraph finish_model(GraphBuilder& builder, const Output& loss, const Output& prediction,
                        std::vector<std::string> columns, std::string label, Prediction predicts,
                        const RowWeights& weights = {}, std::vector<ModelTask> tasks = {});

}  // namespace braid
