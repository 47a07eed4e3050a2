// TENSOR: the workers are groups (strategy.mesh). The workers of a group have the same rows and a slice of
// each layer that is cut (tensor_plan.h); what they need of each other's slices they exchange within a step
// (tensor_rewrite.h). Groups share the rows of a step: gradients are summed over the workers that have the
// same slices.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "comm/communicator.h"
#include "engine/ir/op.h"
#include "engine/program/program.h"
#include "proto/job.pb.h"
#include "worker/strategies/group_ops.h"
#include "worker/strategies/group_values.h"
#include "worker/strategies/sliced_strategy.h"
#include "worker/strategies/tensor_rewrite.h"
#include "worker/strategies/tensor_text.h"

namespace braid::worker {
namespace {

class TensorStrategy : public SlicedStrategy {
 public:
  TensorStrategy(const proto::Job& job, Runtime& runtime, const Peers& peers)
      : SlicedStrategy(job, runtime, peers, mesh_of(job, peers.world)),
        how_(job.strategy().tensor()),
        one_stream_(job.streams().count() <= 1) {
    const std::int64_t rows = job.input().global_batch_size();
    if (rows % mesh_.data != 0)
      throw InvalidArgument(fmt::format(
          "strategy.mesh has {} groups: a batch of {} rows (input.global_batch_size) is not cut into so many "
          "equal parts",
          mesh_.data, rows));
  }

  std::string_view name() const override { return "TENSOR"; }
  float gradient_scale() const override { return 1.0F / static_cast<float>(mesh_.data); }

  void rewrite_training(TrainingGraph& training) override {
    order_later({});
    cut(training);
    std::vector<VariableGradient> reduced = sum_over_groups(training);
    clip(training, reduced);
    share_loss(training);
    add_updates(training, reduced);
    if (one_stream_) work_while_exchanging(training.graph);
    order_by_readiness(training.graph);
  }

  std::string describe(const Program& step) const override {
    return tensor_text(mesh_, plan_.get(), exchanged_over_groups_, step);
  }

 private:
  // ------------------------------------------------------------------------------------------------- layers

  void cut(TrainingGraph& training) {
    if (mesh_.workers == 1) return;
    Graph& graph = training.graph;
    plan_ = plan_tensor(training, how_, mesh_.workers);
    note_slices(graph, plan_->slices);
    // Halves are added up by an all-reduce alone, and on GPUs there is a scatter of the whole job alone.
    const bool scatters = wire_ == DType::Float32 && (mesh_.data == 1 || !on_device_);
    const auto sum_of_slice = [&](ValueRef value, const std::string& name) {
      Node node;
      node.name = graph.unique_name(name + "/sum_of_slice");
      node.inputs = {value};
      node.attrs.set(kMembers, members(group()));
      return ValueRef{add_collective(graph, std::move(node), "braid.GroupReduceScatter"), 0};
    };
    waits_ =
        take_slices(training, *plan_, mesh_.place_of(peers_.rank),
                    {.sum =
                         [&](std::vector<ValueRef> values, const std::string& name) {
                           return sum_over(graph, std::move(values), group(), name + "/sum_of_group", true);
                         },
                     .sum_of_slice = scatters ? sum_of_slice : decltype(GroupCalls::sum_of_slice){},
                     .gather =
                         [&](ValueRef value, const std::string& name) {
                           return gather_over(graph, value, group(), name + "/of_group");
                         }});
  }

  /// One stream alone would put off what nothing waits for, and keep in memory what that reads.
  void work_while_exchanging(Graph& graph) const {
    const bool updates_at_once = mesh_.data == 1 && clip_norm_ == 0;
    for (const WhileExchanging& wait : waits_)
      for (const WhileExchanging::Gradient& gradient : wait.gradients) {
        const NodeId update = graph.find("update/" + gradient.variable);
        const bool behind_update = updates_at_once && gradient.is_read_no_more && update != kNoNode;
        graph.mutable_node(wait.node).control_inputs.push_back(behind_update ? update : gradient.node);
      }
  }

  // ------------------------------------------------------------------------------------------------- groups

  std::vector<VariableGradient> sum_over_groups(TrainingGraph& training) {
    if (mesh_.data == 1) return training.gradients;
    Graph& graph = training.graph;
    const std::vector<int> ranks = mesh_.data_ranks(peers_.rank);
    std::vector<VariableGradient> reduced;
    const auto buckets = bucket_gradients(training.gradients, bucket_bytes_);
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      std::vector<ValueRef> values;
      for (const VariableGradient& gradient : buckets[b])
        if (!gradient.slices) values.push_back(gradient.dense);
      values = sum_over(graph, values, ranks, "all_reduce/bucket" + std::to_string(b), true);
      auto next = values.begin();
      for (VariableGradient gradient : buckets[b]) {
        if (gradient.slices)
          gradient.slices = rows_of_groups(graph, gradient, ranks);
        else
          gradient.dense = *next++;
        if (!gradient.slices) exchanged_over_groups_ += bytes_of(gradient);
        reduced.push_back(std::move(gradient));
      }
    }
    return reduced;
  }

  /// One behind the other.
  IndexedSlices rows_of_groups(Graph& graph, const VariableGradient& gradient,
                               const std::vector<int>& ranks) {
    require_rows_of_fixed_length(graph, gradient);
    const auto joined = [&](ValueRef value, const std::string& name) {
      const ValueRef all = gather_over(graph, value, ranks, "all_gather/" + gradient.variable.name + name);
      return behind_each_other(graph, all, value, "all_gather/rows");
    };
    return {joined(gradient.slices->indices, "/indices"), joined(gradient.slices->values, "/values")};
  }

  /// Each group has a loss, which one of its workers tells.
  void share_loss(TrainingGraph& training) {
    if (peers_.world == 1) return;
    Graph& graph = training.graph;
    const auto scalar = [&](const char* name, float value) {
      return add_node(graph, "Const", name, {},
                      {{"dtype", DType::Float32}, {"value", Tensor::scalar(value)}});
    };
    const ValueRef own =
        mesh_.place_of(peers_.rank) == 0 ? training.weighted_loss : scalar("tensor/told_by_another", 0);
    const std::vector<ValueRef> told =
        sum_over(graph, {own, stop_vote(graph)}, all_ranks(), "all_reduce/loss");
    training.loss = told[0];
    if (mesh_.data > 1)
      training.loss =
          add_node(graph, "Mul", "all_reduce/mean_loss",
                   {told[0], scalar("all_reduce/loss_scale", gradient_scale())}, {{"T", DType::Float32}});
    training.weighted_loss = training.loss;
    training.stop_votes = told[1];
  }

  const proto::Tensor how_;
  const bool one_stream_;
  std::unique_ptr<TensorPlan> plan_;  // null: nothing is cut
  std::vector<WhileExchanging> waits_;
  std::int64_t exchanged_over_groups_ = 0;  // bytes of gradients a step
};

}  // namespace

std::unique_ptr<Strategy> make_tensor_strategy(const proto::Job& job, Runtime& runtime, const Peers& peers) {
  return std::make_unique<TensorStrategy>(job, runtime, peers);
}

}  // namespace braid::worker
