// ALLREDUCE: every worker holds all variables; gradients are summed over the workers in buckets, on the comm
// stream, while backward goes on. Rows of embedding tables are gathered instead, so nothing of a table's size
// is sent.
#include "engine/ir/op.h"
#include "proto/job.pb.h"
#include "worker/clip_gradients.h"
#include "worker/job/optimizers.h"
#include "worker/strategies/allreduce_ops.h"
#include "worker/strategies/collective.h"

namespace braid::worker {
namespace {

class AllReduceStrategy : public CollectiveStrategy {
 public:
  AllReduceStrategy(const proto::Job& job, Runtime& runtime, const Peers& peers)
      : CollectiveStrategy(job, runtime, peers), optimizers_(job), clip_norm_(job.optimizer().clip_norm()) {}

  std::string_view name() const override { return "ALLREDUCE"; }

  void rewrite_training(TrainingGraph& training) override {
    const auto buckets = bucket_gradients(training.gradients, bucket_bytes_);
    std::vector<VariableGradient> reduced;
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      std::vector<VariableGradient> dense;
      for (const auto& gradient : buckets[b]) {
        if (gradient.slices)
          reduced.push_back(gather_rows(training, gradient));
        else
          dense.push_back(gradient);
      }
      for (VariableGradient& gradient : reduce_bucket(training, dense, b))
        reduced.push_back(std::move(gradient));
    }
    clip_by_global_norm(training, reduced, clip_norm_, true);
    for (const auto& gradient : reduced)
      add_update(training, gradient, optimizer_of(training, optimizers_, gradient.variable.name));
  }

 private:
  VariableGradient gather_rows(TrainingGraph& training, VariableGradient gradient) {
    Graph& graph = training.graph;
    Node node;
    node.name = graph.unique_name("all_gather/" + gradient.variable.name);
    node.inputs = {gradient.slices->indices, gradient.slices->values};
    if (const auto rows = training.slice_rows.find(gradient.variable.name);
        rows != training.slice_rows.end()) {
      node.attrs.set(kIndexRows, rows->second.indices);
      node.attrs.set(kValueRows, rows->second.values);
    }
    const NodeId id = add_collective(graph, std::move(node), "braid.AllGatherRows");
    gradient.slices = IndexedSlices{{id, 0}, {id, 1}};
    return gradient;
  }

  const Optimizers optimizers_;
  const float clip_norm_;
};

}  // namespace

std::unique_ptr<Strategy> make_allreduce_strategy(const proto::Job& job, Runtime& runtime,
                                                  const Peers& peers) {
  return std::make_unique<AllReduceStrategy>(job, runtime, peers);
}

}  // namespace braid::worker
