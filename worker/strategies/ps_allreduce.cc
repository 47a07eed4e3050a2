// PS_ALLREDUCE: sparse tables are on parameter servers, which apply their optimizer, and rows and their
// gradients travel as under PS (remote_tables.h); every other variable is on all workers, as under ALLREDUCE.
// In a step no wait of the one goes round by the other: rows wait for the pushes of the step before, sums for
// the rows of their own.
#include <algorithm>

#include "base/error.h"
#include "engine/ir/op.h"
#include "proto/job.pb.h"
#include "worker/job/optimizers.h"
#include "worker/step/clip_gradients.h"
#include "worker/step/loss_scale.h"
#include "worker/strategies/collective.h"
#include "worker/strategies/expand_bags.h"
#include "worker/strategies/home_tables.h"
#include "worker/strategies/remote_tables.h"

namespace braid::worker {
namespace {

class PsAllReduceStrategy : public CollectiveStrategy {
 public:
  PsAllReduceStrategy(const proto::Job& job, Runtime& runtime, const Peers& peers)
      : CollectiveStrategy(job, runtime, peers),
        optimizers_(job),
        clip_norm_(job.optimizer().clip_norm()),
        tables_(job, runtime, peers, "PS_ALLREDUCE") {}

  std::string_view name() const override { return "PS_ALLREDUCE"; }

  void rewrite_training(TrainingGraph& training) override {
    std::vector<std::size_t> at_servers;
    for (std::size_t g = 0; g < training.gradients.size(); ++g) {
      VariableGradient& gradient = training.gradients[g];
      if (!gradient.slices || !gradient.variable.sparse) continue;
      expand_bags(training.graph, gradient.variable, name());
      at_servers.push_back(g);
    }
    tables_.decide_home(training);
    for (const std::size_t g : at_servers) tables_.declare(training, training.gradients[g]);
    if (at_servers.empty())
      throw InvalidArgument(
          "strategy PS_ALLREDUCE keeps sparse tables on its servers, and this model trains none: set "
          "model.sparse_tables: true, or strategy.kind=ALLREDUCE, which needs no servers");
    // As under PS: what all workers' gradients of rows come to, nobody knows before a round is applied.
    unscale_or_drop_gradients(training, training.gradients);
    clip_by_global_norm(training, training.gradients, clip_norm_, false);
    std::vector<VariableGradient> rows, others;
    for (std::size_t g = 0; g < training.gradients.size(); ++g)
      (std::ranges::binary_search(at_servers, g) ? rows : others).push_back(training.gradients[g]);
    servers_vote_ = tables_.exchange(training, rows, false);
    for (const VariableGradient& gradient : reduce_in_buckets(training, others))
      add_update(training, gradient, optimizer_of(training, optimizers_, gradient.variable.name));
  }
  void rewrite_inference(Graph& graph) override { tables_.rewrite_inference(graph); }
  std::vector<Lane> begin_trial(const WaitContext& wait) override { return tables_.begin_trial(wait); }
  void end_trial() override { tables_.end_trial(); }

  /// The others come to the servers behind the leader, who may restore what is there.
  std::uint64_t start(const CheckpointInfo* restored, bool resume, std::uint64_t step,
                      const WaitContext& wait) override {
    tables_.create(wait);
    if (peers_.leader()) {
      if (tables_.fill(restored, resume, wait)) refuse_rows_alone();
      peers_.servers->wait_initialized(wait);
    }
    const std::uint64_t first = CollectiveStrategy::start(restored, resume, step, wait);
    const std::uint64_t rounds = peers_.servers->wait_initialized(wait);
    if (tables_.bsp() && rounds != first) refuse_rows_alone();
    return first;
  }

  void end_step(std::uint64_t step) override {
    CollectiveStrategy::end_step(step);
    tables_.end_step(step);
  }
  void refresh_variables(const WaitContext& wait) override { tables_.refresh(wait); }

  std::vector<ShardInfo> save_remote(const std::filesystem::path& directory, std::uint64_t step,
                                     const std::string& run, const WaitContext& wait) override {
    tables_.write_back(wait);
    return peers_.servers->checkpoint(directory, step, wait, run);
  }
  bool saves_local_variable(const std::string& name) const override {
    return !tables_.holds(name) && !is_home_variable(name);
  }
  void finish_steps(const WaitContext& wait) override {
    CollectiveStrategy::finish_steps(wait);
    tables_.finish_steps(wait);
  }
  void shut_down(bool terminated, const WaitContext& wait) override {
    if (peers_.leader()) peers_.servers->shutdown(wait, terminated);
    CollectiveStrategy::shut_down(terminated, wait);
  }

 protected:
  bool is_shared(const std::string& variable) const override { return !tables_.holds(variable); }
  /// With what the servers want, who may have been asked to end.
  ValueRef stop_vote(Graph& graph) const override {
    const ValueRef own = CollectiveStrategy::stop_vote(graph);
    const ValueRef all =
        add_node(graph, "AddV2", "all_reduce/votes", {own, servers_vote_}, {{"T", DType::Float32}});
    if (!on_device_) graph.mutable_node(all.node).device = "/device:CPU:0";
    return all;
  }

 private:
  const Optimizers optimizers_;
  const float clip_norm_;
  RemoteTables tables_;
  ValueRef servers_vote_;
};

}  // namespace

std::unique_ptr<Strategy> make_ps_allreduce_strategy(const proto::Job& job, Runtime& runtime,
                                                     const Peers& peers) {
  return std::make_unique<PsAllReduceStrategy>(job, runtime, peers);
}

}  // namespace braid::worker
