// ALLREDUCE and MIRRORED with strategy.shard PARAMETERS (ZeRO stage 3), and on GPUs OPTIMIZER and GRADIENTS
// (stages 1 and 2), which gather each variable once a step: each rank has a run of every large dense
// variable, with the optimizer's slots. What a pass reads is gathered before and dropped behind
// (spread_variables.h), gradients are summed to the ranks that have the run, which update it. Small variables
// and tables with gradients of rows are whole on all ranks, as without. Outside of steps slices are those of
// TENSOR.
#include "worker/strategies/sharded_variables.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/program/program.h"
#include "proto/job.pb.h"
#include "worker/step/loss_scale.h"
#include "worker/strategies/group_ops.h"
#include "worker/strategies/sliced_strategy.h"
#include "worker/strategies/spread_variables.h"
#include "worker/strategies/sync_batch_norm.h"
#include "worker/strategies/tensor_text.h"

namespace braid::worker {
namespace {

std::int64_t float_bytes(const Shape& shape) { return shape.elements() * std::int64_t{sizeof(float)}; }

class ShardedVariablesStrategy : public SlicedStrategy {
 public:
  ShardedVariablesStrategy(const proto::Job& job, Runtime& runtime, const Peers& peers)
      : SlicedStrategy(job, runtime, peers, {1, peers.world}), strategy_(job.strategy()) {
    const bool on_host = job.runtime().device() != proto::Runtime::CUDA && !on_device_;
    if (strategy_.compression().kind() != proto::Compression::NONE)
      throw InvalidArgument("strategy.compression has kernels for the CPU only: runtime.device must be CPU");
    if (loss_scale_of(job))
      throw InvalidArgument(
          "strategy.shard does not go with runtime.precision FP16, which scales the loss: set BF16");
    if (wire_ != DType::Float32)
      throw InvalidArgument("strategy.shard does not go with strategy.wire: leave one out");
    if (strategy_.sync_batch_norm() && !on_host)
      throw InvalidArgument(
          "strategy.sync_batch_norm has kernels for the CPU only: runtime.device must be CPU");
  }

  std::string_view name() const override {
    return strategy_.kind() == proto::Strategy::MIRRORED ? "MIRRORED" : "ALLREDUCE";
  }
  bool weighs_gradients() const override { return strategy_.reduction() == proto::Strategy::MEAN; }
  float gradient_scale() const override {
    return strategy_.reduction() == proto::Strategy::SUM ? 1.0F : CollectiveStrategy::gradient_scale();
  }

  void rewrite_training(TrainingGraph& training) override {
    order_later(strategy_.sync_batch_norm() ? synchronize_batch_norms(training.graph)
                                            : std::vector<NodeId>{});
    const NodeId first_added = training.graph.size();
    for (const VariableGradient& gradient : training.gradients) whole_bytes_ += bytes_of(gradient);
    spread(training);
    std::vector<VariableGradient> reduced = reduce(training);
    clip(training, reduced);
    add_updates(training, reduced);
    order_by_readiness(training.graph, first_added);
  }

  std::string describe(const Program& step) const override {
    std::int64_t spread = 0, own = 0, variables = 0;
    std::string lines;
    for (const TensorSlice& slice : slices_) {
      spread += float_bytes(slice.whole.shape);
      own += float_bytes(slice.local_shape());
      lines += fmt::format("  {} {} -> {}\n", slice.whole.name, slice.whole.shape.to_string(),
                           slice.local_shape().to_string());
    }
    for (const ProgramVariable& variable : step.variables)
      variables += variable.shape.elements() * static_cast<std::int64_t>(dtype_size(variable.dtype));
    std::string text = fmt::format(
        "shard: {} variables over {} workers: {} of weights, {} a worker; whole: {}\n{}", slices_.size(),
        peers_.world, amount_text(spread), amount_text(own), amount_text(whole_bytes_ - spread), lines);
    text += passes_text();
    return text + fmt::format("  a worker: variables with slots {}, arena {}\n", amount_text(variables),
                              amount_text(static_cast<std::int64_t>(step.stats.arena_bytes +
                                                                    step.stats.device_arena_bytes)));
  }

 private:
  bool keeps() const { return strategy_.shard() != proto::Strategy::PARAMETERS; }

  /// Gathers of both kinds of passes, and the most that two which follow each other hold.
  std::string passes_text() const {
    struct Passes {
      std::size_t gathers = 0;
      std::int64_t bytes = 0;
    } kinds[2];
    std::int64_t most = 0, before = 0;
    for (const VariableGather& gather : gathers_) {
      Passes& kind = kinds[gather.pass % 2];
      ++kind.gathers;
      kind.bytes += gather.bytes;
      most = std::max(most, before + gather.bytes);
      before = (keeps() ? before : 0) + gather.bytes;
    }
    return fmt::format("  forward: {} gathers of {}; backward: {} of {}; at most {} at once\n",
                       kinds[0].gathers, amount_text(kinds[0].bytes), kinds[1].gathers,
                       amount_text(kinds[1].bytes), amount_text(most));
  }

  void spread(TrainingGraph& training) {
    if (peers_.world == 1) return;
    Graph& graph = training.graph;
    slices_ = spread_slices(training, peers_.world, strategy_.shard_min_elements());
    note_slices(graph, slices_);
    const auto gather = [&](std::vector<ValueRef> values, const std::string& name,
                            std::vector<NodeId> behind) {
      Node node;
      node.name = graph.unique_name(name);
      node.inputs = values;
      node.attrs.set(kMembers, members(all_ranks()));
      node.control_inputs = std::move(behind);
      const NodeId id = add_collective(graph, std::move(node), "braid.GroupGather");
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = {id, static_cast<int>(i)};
      return values;
    };
    const auto sum_of_run = [&](ValueRef value, const std::string& name) {
      Node node;
      node.name = graph.unique_name(name);
      node.inputs = {value};
      node.attrs.set(kMembers, members(all_ranks()));
      return ValueRef{add_collective(graph, std::move(node), "braid.GroupReduceScatter"), 0};
    };
    gathers_ = spread_variables(training, slices_, {bucket_bytes_, keeps()}, {gather, sum_of_run});
  }

  std::vector<VariableGradient> reduce(TrainingGraph& training) {
    std::vector<VariableGradient> reduced, whole;
    for (const VariableGradient& gradient : training.gradients)
      (is_sliced(gradient) ? reduced : whole).push_back(gradient);
    std::ranges::move(reduce_in_buckets(training, whole), std::back_inserter(reduced));
    return reduced;
  }

  const proto::Strategy strategy_;
  std::vector<TensorSlice> slices_;
  std::vector<VariableGather> gathers_;
  std::int64_t whole_bytes_ = 0;  // of all variables with gradients
};

}  // namespace

std::unique_ptr<Strategy> make_sharded_variables_strategy(const proto::Job& job, Runtime& runtime,
                                                          const Peers& peers) {
  return std::make_unique<ShardedVariablesStrategy>(job, runtime, peers);
}

}  // namespace braid::worker
