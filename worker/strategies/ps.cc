// PS: parameter servers hold the variables and apply the optimizer; a worker pulls values at the head of a
// step and pushes gradients as backward makes them. Dense variables keep a local copy that a pull overwrites;
// embedding tables (VariableInfo::sparse) exist on the servers only, and a gather from one becomes a pull of
// its rows. Gradients are pushed in buckets; what one bucket pushes, one pull fetches in the next step.
// Tables that gathers alone read have a pull and a push of their own (ordered_rows.h), whose keys are made in
// the stage and whose rows may be pulled a step ahead.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "engine/ir/op.h"
#include "engine/ops/state/variable_init.h"
#include "proto/job.pb.h"
#include "ps/client/ps_client.h"
#include "worker/batch_share.h"
#include "worker/clip_gradients.h"
#include "worker/job/job.h"
#include "worker/job/optimizers.h"
#include "worker/loss_scale.h"
#include "worker/stored_variables.h"
#include "worker/strategies/expand_bags.h"
#include "worker/strategies/ordered_rows.h"
#include "worker/strategies/step_services.h"
#include "worker/strategies/strategy.h"
#include "worker/strategies/table_gathers.h"

namespace braid::worker {
namespace {

using Ints = std::vector<std::int64_t>;

/// SSP without staleness is BSP.
ps::Consistency consistency_of(const proto::Strategy& strategy) {
  switch (strategy.consistency()) {
    case proto::Strategy::ASP:
      return ps::Consistency::Asp;
    case proto::Strategy::SSP:
      return strategy.staleness() == 0 ? ps::Consistency::Bsp : ps::Consistency::Ssp;
    case proto::Strategy::TIMED:
      return ps::Consistency::Timed;
    default:
      return ps::Consistency::Bsp;
  }
}

ps::TimedRule timed_rule(const proto::Job& job, int world) {
  const proto::Timed& from = job.strategy().timed();
  if (static_cast<int>(from.quorum()) > world)
    throw InvalidArgument("strategy.timed.quorum is " + std::to_string(from.quorum()) + ", but there are " +
                          std::to_string(world) + " workers");
  ps::TimedRule rule;
  rule.timeout_ms = from.timeout_millis();
  rule.quorum = from.quorum() == 0 ? world : static_cast<int>(from.quorum());
  rule.late = from.late() == proto::Timed::NEXT ? ps::TimedRule::Late::Next : ps::TimedRule::Late::Drop;
  rule.late_scale = static_cast<float>(from.late_scale());
  rule.max_late_share = from.max_late_share();
  return rule;
}

class PsStrategy : public Strategy {
 public:
  PsStrategy(const proto::Job& job, Runtime& runtime, const Peers& peers)
      : runtime_(runtime),
        peers_(peers),
        seed_(job.seed()),
        bucket_bytes_(job.strategy().bucket_bytes()),
        examples_(batch_share(job, peers.rank, peers.world).rows()),
        bsp_(consistency_of(job.strategy()) == ps::Consistency::Bsp),
        asp_(consistency_of(job.strategy()) == ps::Consistency::Asp),
        means_(bsp_ || consistency_of(job.strategy()) == ps::Consistency::Timed),
        pull_ahead_(job.strategy().ps().pull_ahead()),
        fills_(job.runtime().check_numerics()),
        optimizers_(job),
        clip_norm_(job.optimizer().clip_norm()),
        rows_may_be_dense_(job.model().has_graph()) {
    runtime.services().provide<ps::PsClient>(peers.servers);
    tables_.optimizer = optimizers_.spec(0);
    for (int g = 1; g <= optimizers_.groups(); ++g) tables_.groups.push_back(optimizers_.spec(g));
    tables_.consistency = consistency_of(job.strategy());
    tables_.workers = peers.world;
    tables_.staleness = std::max(job.strategy().staleness(), 1U);
    if (tables_.consistency == ps::Consistency::Timed) tables_.timed = timed_rule(job, peers.world);
  }

  std::string_view name() const override { return "PS"; }

  /// The pull of the first bucket tells who wants to stop. Under BSP its push carries this worker's wish, and
  /// a server that has values for the pull of the next step has the round's pushes of all workers, so that
  /// all stop after the same step. Under ASP each worker stops by itself, but for a server, and when the
  /// leader has what it wanted, all do.
  void rewrite_training(TrainingGraph& training) override {
    expand_bags(training.graph, name());
    declare_tables(training);
    // What all workers' gradients together come to, nobody knows before a round is applied, table by table.
    unscale_or_drop_gradients(training, training.gradients);
    clip_by_global_norm(training, training.gradients, clip_norm_, false);
    OrderedRows ordered(training, {.servers = peers_.servers ? peers_.servers->servers() : 1,
                                   .versioned = !asp_,
                                   .ahead = bsp_ && pull_ahead_,
                                   .fill = fills_});
    std::vector<VariableGradient> others;
    for (const VariableGradient& gradient : training.gradients) {
      if (sparse_.contains(gradient.variable.name) && OrderedRows::can_take(training.graph, gradient))
        ordered.add(gradient, sparse_.at(gradient.variable.name));
      else
        others.push_back(gradient);
      if (!others.empty() && others.back().slices && pads_indices(training.graph, others.back()))
        throw InvalidArgument(
            "variable '" + gradient.variable.name +
            "': strategy PS has columns of varying length of sparse tables alone, which only "
            "lookups read: set model.sparse_tables: true");
    }
    const auto buckets = bucket_gradients(others, bucket_bytes_);
    // The first pull and the first push of all have the votes.
    const bool rows_vote = buckets.empty();
    if (!ordered.empty()) {
      const ValueRef votes = ordered.pull(rows_vote);
      if (rows_vote) training.stop_votes = votes;
    }
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      // Forward needs the last bucket's variables first, so pulls are made in the reverse order.
      const std::size_t bucket = buckets.size() - 1 - b;
      std::vector<VariableInfo> variables;
      for (const auto& gradient : buckets[bucket]) variables.push_back(gradient.variable);
      const ValueRef votes = add_pull(training.graph, variables, "ps/pull" + std::to_string(b),
                                      {.versioned = !asp_, .insert = true, .votes = bucket == 0});
      if (bucket == 0) training.stop_votes = votes;
    }
    training.votes_for_others = means_;
    for (std::size_t b = 0; b < buckets.size(); ++b) add_push(training, buckets[b], b, b == 0);
    auto sequence = std::ssize(buckets);
    for (const std::vector<int>& groups : ordered.pushes(bucket_bytes_, examples_)) {
      const bool first = sequence == 0;
      ordered.push(groups, sequence++, first ? examples_ : 0, first ? stop_vote(training.graph) : ValueRef{});
    }
  }

  void rewrite_inference(Graph& graph) override {
    // Dense variables are refreshed as a whole, and on the host, where pulls write them in training; rows are
    // pulled as they are read.
    expand_bags(graph, name());
    std::vector<VariableInfo> sparse;
    for (const VariableInfo& variable : list_variables(graph)) {
      if (sparse_.contains(variable.name)) sparse.push_back(variable);
      if (dense_.contains(variable.name)) graph.mutable_node(variable.handle).device = "/device:CPU:0";
    }
    if (!sparse.empty()) add_pull(graph, sparse, "ps/pull", {});
  }

  std::uint64_t start(const CheckpointInfo* restored, bool resume, std::uint64_t step,
                      const WaitContext& wait) override {
    ps::PsClient& servers = *peers_.servers;
    if (const auto* services = runtime_.services().find<StepServices>())
      tables_.timed.rounds = services->total_steps.load();
    servers.create_tables(tables_, wait);
    if (peers_.leader()) {
      if (restored) {
        servers.restore(restored->directory, wait);
      } else if (resume && servers.started(wait)) {
        log_info("the servers hold the values of an earlier leader: continuing with them");
      } else {
        for (const auto& table : tables_.dense) {
          const Tensor value = *runtime_.variables().read(table.name);
          servers.set_dense(table.name, value.data<float>(), wait);
        }
      }
    }
    const std::uint64_t rounds = servers.wait_initialized(wait);
    return asp_ ? step : rounds;
  }

  void refresh_variables(const WaitContext& wait) override {
    for (const auto& table : tables_.dense) {
      Tensor value = *runtime_.variables().read(table.name);
      peers_.servers->read_dense(table.name, value.data<float>(), wait);
      runtime_.variables().write(table.name, value);
    }
  }

  std::vector<ShardInfo> save_remote(const std::filesystem::path& directory, std::uint64_t step,
                                     const std::string& run, const WaitContext& wait) override {
    return peers_.servers->checkpoint(directory, step, wait, run);
  }
  /// Servers have what is trained; statistics that steps store beside it are the worker's.
  bool saves_local_variable(const std::string& name) const override {
    return !dense_.contains(name) && !sparse_.contains(name);
  }
  void finish_steps(const WaitContext& wait) override {
    peers_.servers->leave(wait);
    const ps::AheadCounts ahead = peers_.servers->ahead_counts();
    if (ahead.rows > 0)
      log_info("rows pulled ahead of their round: {}, {:.0f} % of them again as it had changed them",
               ahead.rows, 100 * static_cast<double>(ahead.repaired) / static_cast<double>(ahead.rows));
  }
  void shut_down(bool terminated, const WaitContext& wait) override {
    if (peers_.leader()) peers_.servers->shutdown(wait, terminated);
  }
  /// Under SSP a worker's updates of a step come to those of BSP, one by one.
  float gradient_scale() const override { return asp_ ? 1.0F : 1.0F / static_cast<float>(peers_.world); }

 private:
  struct PullKind {
    bool versioned = false;
    bool insert = false;
    bool votes = false;
  };

  /// The tables' groups are the job's, and behind them the optimizers of the graph.
  int group_of(const TrainingGraph& training, const std::string& variable) {
    const auto own = training.own_optimizers.find(variable);
    if (own == training.own_optimizers.end()) return optimizers_.group_of(variable);
    const auto first = tables_.groups.begin() + optimizers_.groups();
    const auto at = std::find(first, tables_.groups.end(), own->second);
    const auto group = static_cast<int>(at - tables_.groups.begin()) + 1;
    if (at == tables_.groups.end()) tables_.groups.push_back(own->second);
    return group;
  }

  /// Rows of a variable that is whole on the servers, since no rule makes its first values. Right only where
  /// an update without a gradient changes nothing.
  void make_dense(TrainingGraph& training, VariableGradient& gradient) {
    const std::string& name = gradient.variable.name;
    const OptimizerSpec& spec = optimizer_of(training, optimizers_, name);
    const bool stays = (spec.kind == OptimizerKind::Sgd || spec.kind == OptimizerKind::Adagrad) &&
                       spec.weight_decay == 0 && spec.l1 == 0 && spec.l2 == 0;
    if (!stays)
      throw InvalidArgument("variable '" + name +
                            "' is updated by rows and is no sparse table (one is a matrix " +
                            "whose first values follow from a rule, which model.graph.initial GRAPH may "
                            "give), so that servers " +
                            "hold it as a whole: " + std::string(optimizer_name(spec.kind)) +
                            ", or decay, would move rows that no batch names; SGD and ADAGRAD do not");
    Graph& graph = training.graph;
    const ValueRef like{gradient.variable.handle, 0};  // its shape alone
    gradient.dense =
        add_node(graph, "braid.SlicesToDense", name + "/dense_gradient",
                 {gradient.slices->indices, gradient.slices->values, like}, {}, gradient.slices->values.node);
    gradient.slices.reset();
  }

  void declare_tables(TrainingGraph& training) {
    for (auto& gradient : training.gradients) {
      if (gradient.slices && !gradient.variable.sparse && rows_may_be_dense_) make_dense(training, gradient);
      const VariableInfo& variable = gradient.variable;
      const Node& handle = training.graph.node(variable.handle);
      const int group = group_of(training, variable.name);
      if (variable.sparse && gradient.slices) {
        sparse_[variable.name] = static_cast<int>(tables_.sparse.size());
        tables_.sparse.push_back({variable.name, variable.shape[1], variable_init_spec(handle),
                                  make_rng_key(seed_, variable.name), former_name(training.graph, variable),
                                  group});
      } else if (gradient.slices) {
        throw InvalidArgument("variable '" + variable.name +
                              "' is updated by rows: on parameter servers it must be a sparse table "
                              "(model.sparse_tables: true)");
      } else {
        dense_[variable.name] = static_cast<int>(tables_.dense.size());
        tables_.dense.push_back(
            {variable.name, variable.shape.elements(), former_name(training.graph, variable), group});
      }
    }
  }

  /// Result: the votes, when it is asked for them.
  ValueRef add_pull(Graph& graph, const std::vector<VariableInfo>& variables, const std::string& name,
                    PullKind kind) {
    Node pull;
    pull.name = graph.unique_name(name);
    pull.op = &OpRegistry::global().require("braid.PsPull");
    Ints tables, dims;
    std::vector<NodeId> gathers;
    for (const VariableInfo& variable : variables) {
      if (!dense_.contains(variable.name)) continue;
      pull.inputs.push_back({variable.handle, 0});
      tables.push_back(dense_.at(variable.name));
    }
    for (const VariableInfo& variable : variables) {
      if (!sparse_.contains(variable.name)) continue;
      for (NodeId id = 0; id < graph.size(); ++id) {
        if (!is_gather_of(graph.node(id), variable.handle)) continue;
        gathers.push_back(id);
        pull.inputs.push_back(graph.node(id).inputs[1]);
        tables.push_back(sparse_.at(variable.name));
        dims.push_back(variable.shape[1]);
      }
    }
    pull.attrs = {{"tables", tables},
                  {"dims", dims},
                  {"versioned", kind.versioned},
                  {"insert", kind.insert},
                  {"votes", kind.votes}};
    const NodeId id = graph.add(std::move(pull));
    for (std::size_t g = 0; g < gathers.size(); ++g)
      graph.replace_uses({gathers[g], 0}, {id, static_cast<int>(g)});
    // A dense variable is read after its pull.
    for (const VariableInfo& variable : variables) {
      if (!dense_.contains(variable.name)) continue;
      for (NodeId reader = 0; reader < id; ++reader) {
        Node& node = graph.mutable_node(reader);
        if (node.removed) continue;
        for (const ValueRef& input : node.inputs)
          if (input == ValueRef{variable.handle, 0}) {
            node.control_inputs.push_back(id);
            break;
          }
      }
    }
    return {id, static_cast<int>(gathers.size())};
  }

  static ValueRef stop_vote(Graph& graph) { return add_node(graph, "braid.StopVote", "ps/stop_vote", {}); }

  void add_push(TrainingGraph& training, const std::vector<VariableGradient>& bucket, std::size_t sequence,
                bool votes) {
    Node push;
    push.name = training.graph.unique_name("ps/push" + std::to_string(sequence));
    push.op = &OpRegistry::global().require("braid.PsPush");
    Ints dense, sparse;
    for (const auto& gradient : bucket) {
      if (gradient.slices) continue;
      push.inputs.push_back(gradient.dense);
      dense.push_back(dense_.at(gradient.variable.name));
    }
    for (const auto& gradient : bucket) {
      if (!gradient.slices) continue;
      push.inputs.push_back(gradient.slices->indices);
      push.inputs.push_back(gradient.slices->values);
      sparse.push_back(sparse_.at(gradient.variable.name));
    }
    if (votes) push.inputs.push_back(stop_vote(training.graph));
    push.attrs = {{"dense_tables", dense},
                  {"sparse_tables", sparse},
                  {"votes", votes},
                  {"examples", sequence == 0 ? examples_ : 0},
                  {"sequence", static_cast<std::int64_t>(sequence)}};
    training.targets.push_back(push.name);
    training.graph.add(std::move(push));
  }

  Runtime& runtime_;
  Peers peers_;
  std::uint64_t seed_;
  std::int64_t bucket_bytes_;
  std::int64_t examples_;  // of this worker, in a step
  bool bsp_, asp_;
  bool means_;  // an update is of all workers' gradients
  const bool pull_ahead_, fills_;
  const Optimizers optimizers_;
  const float clip_norm_;
  const bool rows_may_be_dense_;  // models of the zoo say which tables are sparse
  ps::TableSet tables_;
  std::map<std::string, int> dense_, sparse_;  // table numbers by variable
};

}  // namespace

std::unique_ptr<Strategy> make_ps_strategy(const proto::Job& job, Runtime& runtime, const Peers& peers) {
  return std::make_unique<PsStrategy>(job, runtime, peers);
}

}  // namespace braid::worker
