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
#include "base/optim.h"
#include "engine/input/schema/column_table.h"
#include "engine/input/schema/row_work.h"
#include "engine/ir/shape.h"
#include "engine/ir/tensor.h"

namespace braid {

class GraphDef;

/// A categorical column of the data, of those that stand side by side in an input column.
struct IdField {
  std::string name;
  std::int64_t length = 1;  // ids of a row; more than one: a list, which 0 fills
  std::int64_t ids = 0;     // they are below it; 0: not known
  bool filled = true;       // 0 fills the list, so it is no id; else all are ids
  ColumnTable table = {};   // as the job has it
  std::string input = {};   // of a ragged one: its input column, "sparse/tags"; else it stands beside others
  bool weighted = false;    // a ragged one has weights
};

/// A sparse mixture of experts (job.proto, message Mixture).
struct MixtureConfig {
  std::int64_t experts = 0;  // 0: layers are dense
  std::int64_t choices = 2;
  double capacity_factor = 1.25;
  double balance = 0.01;
  std::int64_t groups = 1;
};

/// What a job says about its model (job.proto, message Model), and what its data looks like.
struct ModelConfig {
  std::vector<std::int64_t> hidden;  // empty: the model's default
  std::int64_t embedding_dim = 0;    // 0: the model's default, likewise below
  std::int64_t hash_buckets = 0;     // rows of the tables of fields whose number of ids is not known
  std::int64_t classes = 0;
  double embedding_init = 0;  // embeddings begin uniform in +- this; 0: as the model has them
  std::int64_t experts = 0;
  MixtureConfig mixture = {};
  std::vector<std::int64_t> bottom;  // widths of dlrm_v2's bottom layers; empty: its default, likewise below
  std::int64_t cross_layers = 0, cross_rank = 0;
  std::int64_t layers = 0, heads = 0;  // of hstu
  std::int64_t max_rows = 0;           // of hstu: larger tables are cut; 0: none is
  std::vector<std::string> tasks;     // label columns of a model of several tasks; empty: the model's default
  std::vector<double> class_weights;  // by label; a row's loss is multiplied by its label's. Empty: all 1
  bool sparse_tables = false;
  bool several_workers = false;          // share a batch: each has rows of it
  double dropout = 0;                    // share of a hidden layer's outputs that a training step drops
  std::map<std::string, Shape> columns;  // shape of one row of each input column, e.g. "image" -> [28, 28, 1]
  std::map<std::string, DType> types;    // of columns of ids that are not int64
  /// What input columns of ids are made of, in their order; one that is not here has a field a position.
  std::map<std::string, std::vector<IdField>> fields;
};

/// What a model predicts, and from what it is judged (worker/metrics/metrics.h).
enum class Prediction {
  Probability,  // of a label of 1: [B] logits; labels [B] float
  Classes,      // [B, classes] logits; labels [B] int64
  Value,        // [B] or [B, 1] float, as the labels are
};

/// One of several things that a model predicts; all are of one kind.
struct ModelTask {
  std::string name;
  std::string prediction;
  std::string label;
};

/// What users ask a model for, by the name that the graph's node has: "probability" and "logit"; "class",
/// "probabilities" and "logits"; or "value". Of a model of several tasks "<task>/probability".
struct ModelOutput {
  std::string name;
  std::string task;  // empty: of the model
};

/// A gradient that the graph of a model computes itself, and how it is applied.
struct GivenGradient {
  std::string variable;
  std::string values;   // the gradient; with indices: rows of it
  std::string indices;  // empty: dense
  OptimizerSpec optimizer;
};

struct ModelGraph {
  std::unique_ptr<GraphDef> graph;
  /// How the model predicts where that differs from training (stored in place of batch statistics, no
  /// dropout); the same variables, and nodes of the same names for predictions and labels. Null: as in
  /// `graph`.
  std::unique_ptr<GraphDef> inference;
  std::vector<std::string> updates;  // nodes that run in each training step for their effect
  std::string loss;                  // scalar: mean over the batch
  int towers = 0;  // of a graph that had one for each of several GPUs, and is now one of them; 0: of none
  std::string prediction;  // see `predicts`
  std::vector<std::string>
      columns;        // input columns that it reads; each feeds the placeholder of the same name
  std::string label;  // the column that holds the truth
  Prediction predicts = Prediction::Value;
  std::vector<ModelTask> tasks;      // of a model of several; prediction and label above are the first one's
  std::vector<ModelOutput> outputs;  // task by task, the most asked for first
  /// In place of those that the worker would make; empty: it makes them.
  std::vector<GivenGradient> gradients;
  /// What variables begin with where no rule (InitSpec) says it.
  std::map<std::string, Tensor> initial;
  /// What it computes for a row of ragged columns.
  RowWork row_work = {};

  ModelGraph();
  ModelGraph(ModelGraph&&) noexcept;
  ModelGraph& operator=(ModelGraph&&) noexcept;
  ~ModelGraph();
};

/// Throws: InvalidArgument (no such model: the known ones are named; a column that it needs is missing;
/// dropout for a model that has none).
ModelGraph build_model(const std::string& name, const ModelConfig& config);
/// The zoo's, then those of register_model().
std::vector<std::string> model_names();

/// Adds a model that jobs of this process name by `model.name`. It is built twice where a job has dropout:
/// once without, for predictions. Thread rule: at start-up, on the main thread. Throws: InvalidArgument for a
/// name that is taken or empty.
void register_model(const std::string& name, std::function<ModelGraph(const ModelConfig&)> build,
                    bool has_dropout = false);

// One a file.
ModelGraph build_linear_regression(const ModelConfig& config);
ModelGraph build_mlp(const ModelConfig& config);
ModelGraph build_cnn(const ModelConfig& config);
ModelGraph build_wide_deep(const ModelConfig& config);
ModelGraph build_dlrm(const ModelConfig& config);
ModelGraph build_dlrm_v2(const ModelConfig& config);
ModelGraph build_deepfm(const ModelConfig& config);
ModelGraph build_dcn_v2(const ModelConfig& config);
ModelGraph build_mmoe(const ModelConfig& config);
ModelGraph build_din(const ModelConfig& config);
ModelGraph build_hstu(const ModelConfig& config);
ModelGraph build_resnet18(const ModelConfig& config);
ModelGraph build_transformer(const ModelConfig& config);

}  // namespace braid
