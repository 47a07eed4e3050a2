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

/// One categorical column of a batch, and the table that it needs.
struct IdColumn {
  std::string name;         // of its variables: the column's, with '_' for what no name of a node has
  std::string former_name;  // that they had before they were named after columns
  Output ids;               // [B] int64; of a list [B, length], which 0 fills
  DType id_type = DType::Int64;
  std::int64_t length = 1;
  std::int64_t rows = 0;  // of the table
  bool filled = true;     // 0 stands for no id of a list
};

/// Those of the input column `column`, whose batch is `ids` [B, width]. `rows`: of tables of fields whose
/// number of ids is not known. Before they were named after columns, tables were named after their position:
/// `former_prefix` "c" for "c3".
/// Throws: InvalidArgument where the fields do not have the width of the batch.
std::vector<IdColumn> id_columns(GraphBuilder& builder, const ModelConfig& config, const std::string& model,
                                 const std::string& column, const Output& ids, std::int64_t rows,
                                 const std::string& former_prefix = "c");

/// The same for models that pool lists: `ids` is [B, length] of every column, also where that is 1.
std::vector<IdColumn> list_columns(GraphBuilder& builder, const ModelConfig& config, const std::string& model,
                                   const std::string& column, const Output& ids, std::int64_t rows);

/// Of the ids of an input column: int64 unless the data has int32.
DType id_type(const ModelConfig& config, const std::string& column);

/// Ids of the input column, whatever its fields, are below this; `unknown` where that is not known.
std::int64_t ids_of(const ModelConfig& config, const std::string& column, std::int64_t unknown);

/// Of the rows of a list's ids.
enum class Combiner { Mean, Sum };

/// A table "<name>/table" and a row of it for each row of the batch, the combined ones of a list: [B, dim].
Output embedded(GraphBuilder& builder, const ModelConfig& config, const IdColumn& column, std::int64_t dim,
                const InitSpec& init, Combiner combiner = Combiner::Mean);

/// The same for a list [B, length], by one node that reads rows and writes their sum or mean (braid.Bag).
Output pooled(GraphBuilder& builder, const ModelConfig& config, const IdColumn& column, std::int64_t dim,
              const InitSpec& init, Combiner combiner);

/// 1 where `ids` [B, L] are not 0, as [B, 1, L].
Output list_mask(GraphBuilder& builder, const Output& ids, std::int64_t length);

/// How the initial values of a table [rows, dim] follow from its size.
using TableInit = InitSpec (*)(std::int64_t rows, std::int64_t dim);

/// All columns of "sparse" so, with the initial values that the job says, or `init`.
std::vector<Output> column_embeddings(GraphBuilder& builder, const ModelConfig& config,
                                      const std::vector<IdColumn>& columns, std::int64_t dim, TableInit init);

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
