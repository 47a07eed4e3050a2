// The graph of one training step before a strategy has placed its updates: forward graph, loss, and the
// gradients of all trainable variables. Strategies (worker/strategies) add what moves gradients and values
// between processes, and the update ops where updates are local.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/optim.h"
#include "engine/autodiff/gradients.h"
#include "engine/ir/graph.h"
#include "engine/ir/infer.h"
#include "worker/input/batch_share.h"

namespace braid {
class GraphDef;
struct GivenGradient;
}  // namespace braid

namespace braid::worker {

class Optimizers;

/// How many rows the slices of a gradient have on each rank: the first dimensions of their two values.
struct SliceRows {
  std::vector<std::int64_t> indices, values;
};

/// Dynamic loss scaling (worker/step/loss_scale.h).
struct LossScaleOptions {
  float first = 1;
  std::int64_t growth_steps = 1;  // without an overflow, after which the scale is doubled
};
struct LossScale {
  ValueRef scale, good_steps, skipped_steps;  // handles
  std::int64_t growth_steps = 1;
};

struct TrainingGraph {
  Graph graph;
  ValueRef loss;           // scalar; a strategy may replace it by one over all workers
  ValueRef weighted_loss;  // the loss of this worker's rows by its weight; the loss itself where that is 1
  std::vector<VariableGradient> gradients;
  std::map<std::string, OptimizerSpec>
      own_optimizers;                           // of variables whose graph has one, in place of the job's
  std::map<std::string, SliceRows> slice_rows;  // by variable; empty where all ranks have as many
  std::vector<FeedInfo> feeds;                  // of a step of the first worker; empty: not known
  std::optional<LossScale> loss_scale;          // gradients are those of the loss times it
  ValueRef skipped;                             // valid: scalar, 1 where the step updates nothing
  ValueRef dropped;                             // valid: scalar, how many choices of experts the step drops
  std::vector<std::string> targets;             // nodes that run for their effect in each step
  std::vector<std::string> ahead;  // nodes that pay ahead of the step, in its stage, whatever else is there
  ValueRef stop_votes;  // valid: scalar, positive when a worker or server wants all to stop after this step
  std::vector<std::int64_t>
      part_of;  // by node: the part of a batch that it is of, -1: none; where it was cut
  bool votes_for_others =
      true;  // a worker's own wish to stop is in stop_votes, so that it stops with the others
};

/// Imports and differentiates the loss times `weight`. `parted`: a step's batch will be cut into parts
/// (worker/step/micro_batches.h). With a `loss_scale` the gradients are those of so many times the loss.
/// Throws: InvalidArgument (see import_graph, add_gradients).
TrainingGraph make_training_graph(const GraphDef& forward, const std::string& loss, float weight = 1.0F,
                                  bool parted = false,
                                  const std::optional<LossScaleOptions>& loss_scale = {});

/// The same for a graph that has its gradients.
TrainingGraph make_training_graph(const GraphDef& forward, const std::string& loss, float weight,
                                  const std::vector<GivenGradient>& given);

/// The loss that workers add up, by this one's weight, where its gradients do not have that.
void weigh_loss(TrainingGraph& training, float weight);

/// What the graph says, else the job.
const OptimizerSpec& optimizer_of(const TrainingGraph& training, const Optimizers& optimizers,
                                  const std::string& variable);

/// Of all gradients that are slices, for the batches of all ranks. Throws: InvalidArgument where the number
/// does not follow from the batch.
std::map<std::string, SliceRows> count_slice_rows(const TrainingGraph& training,
                                                  const std::vector<std::string>& columns,
                                                  const Batcher& batcher, const BatchShare& share);

/// Adds a node of that op and gives its output 0. The name is made unique; the node has the stream of
/// `beside`.
ValueRef add_node(Graph& graph, const char* op, const std::string& name, std::vector<ValueRef> inputs,
                  AttrMap attrs = {}, NodeId beside = kNoNode);

/// Adds a variable that steps keep for themselves, such as a slot, and gives its handle. `low`, `high`: of
/// initial values that are drawn; a constant where they are equal.
ValueRef add_state(Graph& graph, const std::string& name, const Shape& shape, float low, float high,
                   DType dtype = DType::Float32);

/// Adds the local update of one variable: its slot variables "<variable>/<slot>" and
/// braid.(Sparse)ApplyOptimizer, which becomes a target; or what the optimizer has in place of these
/// (worker/step/whole_updates.h). Throws: InvalidArgument where the optimizer has none for rows.
void add_update(TrainingGraph& training, const VariableGradient& gradient, const OptimizerSpec& optimizer);

/// Whether negative indices of a gradient's rows name none. REQUIRES: it has slices.
bool pads_indices(const Graph& graph, const VariableGradient& gradient);

/// Gradients cut into buckets of at most `bucket_bytes`, in the order in which backward produces them (last
/// variables first). A variable is never cut, so one that is larger has a bucket of its own; sparse
/// gradients, whose rows are not known yet, count nothing.
std::vector<std::vector<VariableGradient>> bucket_gradients(const std::vector<VariableGradient>& gradients,
                                                            std::int64_t bucket_bytes);

}  // namespace braid::worker
