// What a job needs of a graph that the graph may not have: a scalar loss, and what it predicts under the
// names that metrics, predictions and exports know (models/model.h). Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "base/init.h"
#include "engine/ir/graph.h"
#include "models/model.h"
#include "worker/model/feeds.h"

namespace braid::proto {
class AttachedLoss;
}

namespace braid::worker {

/// The logits that a loss of `kind` takes: behind a Sigmoid or Softmax of that kind what it is made of.
ValueRef logits_behind(const Graph& graph, int kind, ValueRef prediction);

/// A loss of `prediction` and `label`, by the formulas of models/common.h; kind is an AttachedLoss::Kind.
ValueRef attach_loss(Graph& graph, int kind, ValueRef prediction, ValueRef label);

/// `loss` as a float32 scalar: its mean where it is none.
ValueRef scalar_loss(Graph& graph, ValueRef loss);

/// The names that add_output_nodes() uses: no other node may have them.
std::vector<std::string> output_names();

struct PredictedValue {
  ValueRef value;  // logits, or the value
  Prediction kind = Prediction::Value;
  int class_axis = -1;            // of logits [B, classes, ...] 1, else the last
  bool label_has_shares = false;  // the label is a share of each class
};

/// Behind nodes that only change its shape.
ValueRef behind_shapes(const Graph& graph, ValueRef value);

/// What a loss, or the job, says of the prediction.
enum class SaidOfPrediction { Nothing, IsValue, IsLogit, IsClassLogits };

/// What the loss of `train` says of `prediction`, also where the graph that predicts, `predicts`, is another
/// one: a node of its name and op is its own. `label`: its placeholder; `several`: a row has several labels.
SaidOfPrediction said_by_loss(const Graph& train, ValueRef loss, const Graph& predicts, ValueRef prediction,
                              const std::string& label, bool several);

/// What `prediction` is: by the attached loss, if any; else a Sigmoid or Softmax tells (and its input is the
/// logits), else what is said of it, else the label's column: integers are classes, one number
/// a row 0 or 1. Logits of as many labels as a row has are probabilities, each of one label; softmax beside a
/// label of as many shares is of classes.
PredictedValue predicted_value(const Graph& graph, ValueRef prediction, const proto::AttachedLoss* attached,
                               const InputColumn* label, SaidOfPrediction said);

struct GraphOutputs {
  std::string prediction;
  Prediction kind = Prediction::Value;
  std::vector<ModelOutput> outputs;
};
GraphOutputs add_output_nodes(Graph& graph, const PredictedValue& predicted);

/// Reads of the variable become the constant.
void read_constant(Graph& graph, const std::string& variable, const Tensor& value);

/// Of float32; other types: constants alone.
void fill_by_rule(const InitSpec& spec, RngKey key, Tensor& value);
/// "uniform in [-0.1, 0.1)".
std::string init_text(const InitSpec& spec);

}  // namespace braid::worker
