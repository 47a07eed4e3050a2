// EXPERTS: as ALLREDUCE each worker has rows of its own, and gradients are summed over all workers. But the
// workers of a group (strategy.mesh) have a slice of the experts of sparse mixtures each (experts_plan.h):
// tokens go to the workers of their experts and come back by all-to-alls within the step (experts_rewrite.h),
// and gradients of experts are summed over the workers that have the same ones.
#include <fmt/format.h>

#include "base/error.h"
#include "proto/job.pb.h"
#include "worker/strategies/experts_rewrite.h"
#include "worker/strategies/experts_text.h"
#include "worker/strategies/group_ops.h"
#include "worker/strategies/sliced_strategy.h"

namespace braid::worker {
namespace {

class ExpertsStrategy : public SlicedStrategy {
 public:
  ExpertsStrategy(const proto::Job& job, Runtime& runtime, const Peers& peers)
      : SlicedStrategy(job, runtime, peers, mesh_of(job, peers.world)), how_(job.strategy().experts()) {
    const std::int64_t rows = job.input().global_batch_size();
    if (rows % peers.world != 0)
      throw InvalidArgument(fmt::format(
          "strategy.kind EXPERTS: a batch of {} rows (input.global_batch_size) is not cut into {} "
          "equal parts, one a worker",
          rows, peers.world));
  }

  std::string_view name() const override { return "EXPERTS"; }

  void rewrite_training(TrainingGraph& training) override {
    order_later({});
    const NodeId first_added = training.graph.size();
    spread(training);
    std::vector<VariableGradient> reduced = reduce(training);
    clip(training, reduced);
    share_loss(training, reduced);
    add_updates(training, reduced);
    order_by_readiness(training.graph, first_added);
  }

  std::string describe(const Program& step) const override {
    return experts_text(mesh_, plan_.get(), exchanged_, step);
  }

 private:
  void spread(TrainingGraph& training) {
    if (mesh_.workers == 1) return;
    Graph& graph = training.graph;
    plan_ = plan_experts(training, how_, mesh_.workers);
    note_slices(graph, plan_->slices);
    const auto call = [&](const char* op) {
      return [this, &graph, op](ValueRef value, const std::string& name) {
        Node node;
        node.name = graph.unique_name(name);
        node.inputs = {value};
        node.attrs.set(kMembers, members(group()));
        return ValueRef{add_collective(graph, std::move(node), op), 0};
      };
    };
    spread_experts(training, *plan_, mesh_.place_of(peers_.rank),
                   {.all_to_all = call("braid.GroupAllToAll"),
                    .gather = call("braid.GroupGather"),
                    .sum_of_slice = call("braid.GroupReduceScatter")});
  }

  /// Those of experts over the workers that have the same ones, all others over all workers.
  std::vector<VariableGradient> reduce(TrainingGraph& training) {
    std::vector<VariableGradient> reduced;
    const auto buckets = bucket_gradients(training.gradients, bucket_bytes_);
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      std::vector<VariableGradient> dense, of_experts;
      for (const VariableGradient& gradient : buckets[b]) {
        if (gradient.slices)
          reduced.push_back(peers_.world == 1 ? gradient : gather_rows(training, gradient));
        else
          (is_sliced(gradient) ? of_experts : dense).push_back(gradient);
      }
      const std::string name = "all_reduce/bucket" + std::to_string(b);
      sum(training.graph, dense, all_ranks(), name, exchanged_.of_all);
      sum(training.graph, of_experts, mesh_.data_ranks(peers_.rank), name + "/experts",
          exchanged_.of_experts);
      reduced.insert(reduced.end(), dense.begin(), dense.end());
      reduced.insert(reduced.end(), of_experts.begin(), of_experts.end());
    }
    return reduced;
  }

  void sum(Graph& graph, std::vector<VariableGradient>& gradients, const std::vector<int>& ranks,
           const std::string& name, std::int64_t& bytes) {
    if (ranks.size() == 1) return;
    std::vector<ValueRef> values;
    for (const VariableGradient& gradient : gradients) {
      values.push_back(gradient.dense);
      bytes += bytes_of(gradient);
    }
    values = sum_over(graph, std::move(values), ranks, name, true);
    for (std::size_t i = 0; i < values.size(); ++i) gradients[i].dense = values[i];
  }

  /// Behind all `gradients`: no other exchange waits for it, and nothing in the step reads it.
  void share_loss(TrainingGraph& training, const std::vector<VariableGradient>& gradients) {
    if (peers_.world == 1) return;
    Graph& graph = training.graph;
    const std::vector<ValueRef> told =
        sum_over(graph, {training.weighted_loss, stop_vote(graph)}, all_ranks(), "all_reduce/loss");
    for (const VariableGradient& gradient : gradients)
      graph.mutable_node(told[0].node)
          .control_inputs.push_back(gradient.slices ? gradient.slices->values.node : gradient.dense.node);
    const ValueRef scale = add_node(graph, "Const", "all_reduce/loss_scale", {},
                                    {{"dtype", DType::Float32}, {"value", Tensor::scalar(gradient_scale())}});
    training.loss = add_node(graph, "Mul", "all_reduce/mean_loss", {told[0], scale}, {{"T", DType::Float32}});
    training.weighted_loss = training.loss;
    training.stop_votes = told[1];
  }

  const proto::Experts how_;
  std::unique_ptr<ExpertsPlan> plan_;  // null: nothing is spread
  ExpertGradients exchanged_;
};

}  // namespace

std::unique_ptr<Strategy> make_experts_strategy(const proto::Job& job, Runtime& runtime, const Peers& peers) {
  return std::make_unique<ExpertsStrategy>(job, runtime, peers);
}

}  // namespace braid::worker
