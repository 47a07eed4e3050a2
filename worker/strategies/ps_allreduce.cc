// PS_ALLREDUCE: sparse tables are on parameter servers, which apply their optimizer, and rows and their
// gradients travel as under PS (remote_tables.h); every other variable is on all workers, as under ALLREDUCE.
// In a step no wait of the one goes round by the other: rows wait for the pushes of the step before, sums for
// the rows of their own. Where each worker is the home of a part of the rows, these travel between workers
// (home_tables.h).
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/error.h"
#include "comm/communicator.h"
#include "engine/ir/op.h"
#include "proto/job.pb.h"
#include "worker/job/optimizers.h"
#include "worker/step/clip_gradients.h"
#include "worker/step/loss_scale.h"
#include "worker/strategies/clip_parts.h"
#include "worker/strategies/collective.h"
#include "worker/strategies/expand_bags.h"
#include "worker/strategies/home_link.h"
#include "worker/strategies/home_service.h"
#include "worker/strategies/home_tables.h"
#include "worker/strategies/hybrid_rewrite.h"
#include "worker/strategies/remote_tables.h"
#include "worker/strategies/step_services.h"
#include "worker/strategies/table_shard.h"

namespace braid::worker {
namespace {

class PsAllReduceStrategy : public CollectiveStrategy {
 public:
  PsAllReduceStrategy(const proto::Job& job, Runtime& runtime, const Peers& peers)
      : CollectiveStrategy(job, runtime, peers),
        fills_(job.runtime().check_numerics()),
        optimizers_(job),
        clip_norm_(job.optimizer().clip_norm()),
        link_(runtime.services().find<HomeLink>()),
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
    if (at_servers.empty())
      throw InvalidArgument(
          "strategy PS_ALLREDUCE keeps sparse tables on its servers, and this model trains none: set "
          "model.sparse_tables: true, or strategy.kind=ALLREDUCE, which needs no servers");
    tables_.decide_home(training);
    for (const std::size_t g : at_servers) tables_.declare(training, training.gradients[g]);
    if (tables_.are_homes()) return train_at_homes(training, at_servers);
    // As under PS: what all workers' gradients of rows come to, nobody knows before a round is applied.
    unscale_or_drop_gradients(training, training.gradients);
    clip_by_global_norm(training, training.gradients, clip_norm_, false);
    const auto [rows, others] = split(training, at_servers);
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
  void refresh_variables(const WaitContext& wait) override {
    if (service_) write_back(wait);
    tables_.refresh(wait);  // brings back this worker's rows itself
  }
  void meet_at_border(const WaitContext& wait) override {
    if (!service_) return;
    if (peers_.leader())
      service_->release(wait);
    else
      service_->serve(services_->peer_deadline);
  }

  std::vector<ShardInfo> save_remote(const std::filesystem::path& directory, std::uint64_t step,
                                     const std::string& run, const WaitContext& wait) override {
    write_back(wait);
    return peers_.servers->checkpoint(directory, step, wait, run);
  }
  bool saves_local_variable(const std::string& name) const override {
    return !tables_.holds(name) && !is_home_variable(name);
  }
  /// Behind it the servers have all rows, so that the leader needs nobody.
  void finish_steps(const WaitContext& wait) override {
    if (service_) write_back(wait);
    meet_at_border(wait);
    service_.reset();
    CollectiveStrategy::finish_steps(wait);
    tables_.finish_steps(wait);
  }
  void shut_down(bool terminated, const WaitContext& wait) override {
    if (peers_.leader()) peers_.servers->shutdown(wait, terminated);
    CollectiveStrategy::shut_down(terminated, wait);
  }

  void abort() override {
    if (link_) link_->communicator->abort();
    CollectiveStrategy::abort();
  }

 protected:
  bool is_shared(const std::string& variable) const override {
    return !tables_.holds(variable) && !is_home_variable(variable);
  }
  /// With what the servers want, who may have been asked to end.
  ValueRef stop_vote(Graph& graph) const override {
    const ValueRef own = CollectiveStrategy::stop_vote(graph);
    const ValueRef all =
        add_node(graph, "AddV2", "all_reduce/votes", {own, servers_vote_}, {{"T", DType::Float32}});
    if (!on_device_) graph.mutable_node(all.node).device = "/device:CPU:0";
    return all;
  }

 private:
  using Gradients = std::vector<VariableGradient>;

  /// Of rows that are at servers, and others.
  static std::pair<Gradients, Gradients> split(const TrainingGraph& training,
                                               const std::vector<std::size_t>& at_servers) {
    std::pair<Gradients, Gradients> both;
    for (std::size_t g = 0; g < training.gradients.size(); ++g)
      (std::ranges::binary_search(at_servers, g) ? both.first : both.second).push_back(training.gradients[g]);
    return both;
  }

  /// Each worker is the home of the rows of its part: these and their gradients travel as under HYBRID.
  void train_at_homes(TrainingGraph& training, const std::vector<std::size_t>& at_servers) {
    const auto [rows, others] = split(training, at_servers);
    std::vector<TableShard> shards(rows.size());
    for (std::size_t t = 0; t < rows.size(); ++t) {
      shards[t].name = rows[t].variable.name;
      shards[t].rows = rows[t].variable.shape[0];
      shards[t].dim = rows[t].variable.shape[1];
      shards[t].rank = peers_.rank;
      shards[t].world = peers_.world;
    }
    std::vector<const TableShard*> tables;
    for (const TableShard& shard : shards) tables.push_back(&shard);
    HomeTables& homes = tables_.homes_of(rows);
    const auto add = [&](Node node, const char* op) {
      return add_collective(training.graph, std::move(node), op);
    };
    HybridRewrite rewrite(training, add, fills_);
    rewrite.look_up(tables, rows, [&](const std::vector<ValueRef>& lists) {
      return homes.find_rows(training, lists, !on_device_);
    });
    servers_vote_ = homes.votes();
    Gradients reduced = reduce_in_buckets(training, others);
    const auto first_home = static_cast<std::ptrdiff_t>(reduced.size());
    std::ranges::move(rewrite.exchange_gradients(), std::back_inserter(reduced));
    clip_over_ranks(training, reduced, clip_norm_, is_home_variable, add);
    for (auto its = reduced.begin(); its != reduced.end(); ++its)
      if (its - reduced.begin() < first_home)
        add_update(training, *its, optimizer_of(training, optimizers_, its->variable.name));
      else
        homes.update(training, *its);
    if (link_)
      service_.emplace(link_->communicator, [this](const WaitContext& wait) { tables_.write_back(wait); });
  }

  /// The servers have the rows of all workers: the leader asks the others for theirs.
  void write_back(const WaitContext& wait) {
    if (!service_) return tables_.write_back(wait);
    if (peers_.leader()) service_->flush(wait);
  }

  const bool fills_;
  const Optimizers optimizers_;
  const float clip_norm_;
  const HomeLink* const link_;  // null: none, or the step is only looked at
  RemoteTables tables_;
  ValueRef servers_vote_;
  std::optional<HomeService> service_;  // of homes that meet, until steps have ended
};

}  // namespace

std::unique_ptr<Strategy> make_ps_allreduce_strategy(const proto::Job& job, Runtime& runtime,
                                                     const Peers& peers) {
  return std::make_unique<PsAllReduceStrategy>(job, runtime, peers);
}

}  // namespace braid::worker
