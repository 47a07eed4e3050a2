// The model zoo: each model is a function that writes a forward graph with the C++ builder and says how it is
// fed and judged. Gradients, optimizer and distribution are added by the worker, so a model knows nothing of
// them. examples/jobs has a job file for each.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "engine/ir/shape.h"

namespace braid {

class GraphDef;

/// What a job says about its model (job.proto, message Model), and what its data looks like.
struct ModelConfig {
  std::vector<std::int64_t> hidden;  // empty: the model's default
  std::int64_t embedding_dim = 0;    // 0: the model's default, likewise below
  std::int64_t hash_buckets = 0;
  std::int64_t classes = 0;
  bool sparse_tables = false;
  std::map<std::string, Shape> columns;  // shape of one row of each input column, e.g. "image" -> [28, 28, 1]
};

enum class ModelMetric { None, Accuracy, Auc };

struct ModelGraph {
  std::unique_ptr<GraphDef> graph;
  std::string loss;        // scalar: mean over the batch
  std::string prediction;  // accuracy: [B, classes] logits; AUC: [B] logits
  std::vector<std::string>
      columns;        // input columns that it reads; each feeds the placeholder of the same name
  std::string label;  // the column that holds the truth
  ModelMetric metric = ModelMetric::None;

  ModelGraph();
  ModelGraph(ModelGraph&&) noexcept;
  ModelGraph& operator=(ModelGraph&&) noexcept;
  ~ModelGraph();
};

/// Throws: InvalidArgument (no such model: the known ones are named; a column that it needs is missing).
ModelGraph build_model(const std::string& name, const ModelConfig& config);
std::vector<std::string> model_names();

// One a file.
ModelGraph build_linear_regression(const ModelConfig& config);
ModelGraph build_mlp(const ModelConfig& config);
ModelGraph build_cnn(const ModelConfig& config);
ModelGraph build_wide_deep(const ModelConfig& config);
ModelGraph build_dlrm(const ModelConfig& config);

}  // namespace braid
