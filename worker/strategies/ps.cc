// PS: parameter servers hold the variables and apply the optimizer; a worker pulls values at the head of a
// step and pushes gradients as backward makes them (remote_tables.h).
#include "base/log.h"
#include "proto/job.pb.h"
#include "worker/job/optimizers.h"
#include "worker/step/clip_gradients.h"
#include "worker/step/loss_scale.h"
#include "worker/strategies/expand_bags.h"
#include "worker/strategies/home_tables.h"
#include "worker/strategies/remote_tables.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

class PsStrategy : public Strategy {
 public:
  PsStrategy(const proto::Job& job, Runtime& runtime, const Peers& peers)
      : peers_(peers),
        optimizers_(job),
        clip_norm_(job.optimizer().clip_norm()),
        tables_(job, runtime, peers, "PS") {}

  std::string_view name() const override { return "PS"; }

  /// The pull of the first bucket tells who wants to stop. Under BSP its push carries this worker's wish, and
  /// a server that has values for the pull of the next step has the round's pushes of all workers, so that
  /// all stop after the same step. Under ASP each worker stops by itself, but for a server, and when the
  /// leader has what it wanted, all do.
  void rewrite_training(TrainingGraph& training) override {
    expand_bags(training.graph, name());
    tables_.decide_home(training);
    for (VariableGradient& gradient : training.gradients)
      if (!tables_.is_home() || gradient.slices) tables_.declare(training, gradient);
    // What all workers' gradients together come to, nobody knows before a round is applied, table by table.
    unscale_or_drop_gradients(training, training.gradients);
    clip_by_global_norm(training, training.gradients, clip_norm_, false);
    if (tables_.is_home()) return update_at_home(training);
    training.stop_votes = tables_.exchange(training, training.gradients, true);
    training.votes_for_others = tables_.means();
  }
  void rewrite_inference(Graph& graph) override { tables_.rewrite_inference(graph); }
  std::vector<Lane> begin_trial(const WaitContext& wait) override { return tables_.begin_trial(wait); }
  void end_trial() override { tables_.end_trial(); }

  std::uint64_t start(const CheckpointInfo* restored, bool resume, std::uint64_t step,
                      const WaitContext& wait) override {
    tables_.create(wait);
    const bool continues = peers_.leader() && tables_.fill(restored, resume, wait);
    if (continues && tables_.is_home()) refuse_rows_alone();
    if (continues) log_info("the servers hold the values of an earlier leader: continuing with them");
    const std::uint64_t rounds = peers_.servers->wait_initialized(wait);
    return tables_.asp() ? step : rounds;
  }

  void end_step(std::uint64_t step) override { tables_.end_step(step); }
  void refresh_variables(const WaitContext& wait) override { tables_.refresh(wait); }

  std::vector<ShardInfo> save_remote(const std::filesystem::path& directory, std::uint64_t step,
                                     const std::string& run, const WaitContext& wait) override {
    tables_.write_back(wait);
    return peers_.servers->checkpoint(directory, step, wait, run);
  }
  /// Servers have what is trained; statistics that steps store beside it are the worker's.
  bool saves_local_variable(const std::string& name) const override {
    return !tables_.holds(name) && !is_home_variable(name);
  }
  void finish_steps(const WaitContext& wait) override { tables_.finish_steps(wait); }
  void shut_down(bool terminated, const WaitContext& wait) override {
    if (peers_.leader()) peers_.servers->shutdown(wait, terminated);
  }
  /// Under SSP a worker's updates of a step come to those of BSP, one by one.
  float gradient_scale() const override {
    return tables_.asp() ? 1.0F : 1.0F / static_cast<float>(peers_.world);
  }

 private:
  /// The only worker updates all variables by itself.
  void update_at_home(TrainingGraph& training) {
    std::vector<VariableGradient> rows;
    for (const VariableGradient& gradient : training.gradients)
      if (gradient.slices) rows.push_back(gradient);
    const ValueRef servers = tables_.exchange(training, rows, false);
    for (const VariableGradient& gradient : training.gradients)
      if (!gradient.slices)
        add_update(training, gradient, optimizer_of(training, optimizers_, gradient.variable.name));
    const ValueRef own = add_node(training.graph, "braid.StopVote", "ps/stop_vote", {});
    training.stop_votes =
        add_node(training.graph, "AddV2", "ps/votes", {own, servers}, {{"T", DType::Float32}});
    training.graph.mutable_node(training.stop_votes.node).device = "/device:CPU:0";
    training.votes_for_others = true;
  }

  const Peers peers_;
  const Optimizers optimizers_;
  const float clip_norm_;
  RemoteTables tables_;
};

}  // namespace

std::unique_ptr<Strategy> make_ps_strategy(const proto::Job& job, Runtime& runtime, const Peers& peers) {
  return std::make_unique<PsStrategy>(job, runtime, peers);
}

}  // namespace braid::worker
