// Updates of variables whose optimizer slots are spread over the ranks, as a rewrite of the training graph
// (worker/strategies/shard_ops.h). A bucket has one optimizer, and one variable for each slot that holds this
// rank's part of all its variables' slots. Thread rule: one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "worker/step/training_graph.h"
#include "worker/strategies/rank_states.h"

namespace braid::worker {

/// As CollectiveStrategy::add_collective.
using AddCollective = std::function<NodeId(Node node, const char* op)>;

class ShardedUpdates {
 public:
  ShardedUpdates(TrainingGraph& training, int world, AddCollective add_collective)
      : training_(training), world_(world), add_collective_(std::move(add_collective)) {}

  /// A bucket whose gradients are summed over ranks already, or are to be (`scatter`). REQUIRES: all dense.
  void add_bucket(const std::vector<VariableGradient>& gradients, const OptimizerSpec& optimizer,
                  bool scatter);
  /// This rank's parts of the buckets' gradients, as gradients of variables that do not exist, to be clipped.
  std::vector<VariableGradient>& parts() { return parts_; }
  /// Behind clipping. Result: the slots.
  std::vector<RankState> add_updates();

 private:
  struct Bucket {
    std::vector<VariableInfo> variables;
    OptimizerSpec optimizer;
  };
  TrainingGraph& training_;
  const int world_;
  const AddCollective add_collective_;
  std::vector<Bucket> buckets_;
  std::vector<VariableGradient> parts_;
};

/// Buckets cut where the optimizer changes.
std::vector<std::vector<VariableGradient>> split_by_optimizer(
    const std::vector<VariableGradient>& bucket,
    const std::function<const OptimizerSpec&(const VariableGradient&)>& optimizer_of);

}  // namespace braid::worker
