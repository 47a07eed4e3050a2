// Pieces that several models are made of.
#pragma once

#include <string>
#include <vector>

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

/// Fully connected layers with ReLU, and dropout behind each: "<name>/layer0", ... Returns the last layer's
/// output; `width` becomes its width.
Output mlp_layers(GraphBuilder& builder, const std::string& name, Output x, std::int64_t& width,
                  const std::vector<std::int64_t>& hidden, double dropout_rate = 0);

/// A table [buckets, dim], uniform in +-`init` (0: 1/sqrt(dim)), for b.gather.
Output embedding_table(GraphBuilder& builder, const std::string& name, std::int64_t buckets, std::int64_t dim,
                       bool sparse, double init = 0);

/// Such a table and the rows of `ids` [B] in it.
Output embedding(GraphBuilder& builder, const std::string& name, const Output& ids, std::int64_t buckets,
                 std::int64_t dim, bool sparse, double init = 0);

/// Column c of `ids` [B, C] as [B], each with a table "c<c>" of its own: C times [B, dim].
std::vector<Output> column_embeddings(GraphBuilder& builder, const Output& ids, std::int64_t columns,
                                      std::int64_t buckets, std::int64_t dim, const ModelConfig& config);

/// A layer without activation down to one number a row: [B, width] -> [B].
Output logit(GraphBuilder& builder, const std::string& name, const Output& x, std::int64_t width);

/// Mean over the batch of the sigmoid cross entropy of logits [B] and labels [B] in {0, 1}.
Output mean_sigmoid_loss(GraphBuilder& builder, const Output& logits, const Output& labels);

/// Finishes a model: names what it predicts (ModelOutput), and moves the graph out of the builder.
/// `tasks`: of a model of several.
ModelGraph finish_model(GraphBuilder& builder, const Output& loss, const Output& prediction,
                        std::vector<std::string> columns, std::string label, Prediction predicts,
                        std::vector<ModelTask> tasks = {});

}  // namespace braid
