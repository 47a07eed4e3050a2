#include "worker/strategies/remote_tables.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/table_row.h"
#include "engine/ir/op.h"
#include "engine/ops/state/variable_init.h"
#include "proto/job.pb.h"
#include "worker/checkpoint/stored_variables.h"
#include "worker/input/batch_share.h"
#include "worker/job/elastic.h"
#include "worker/job/homes.h"
#include "worker/step/whole_updates.h"
#include "worker/strategies/cached_rows.h"
#include "worker/strategies/expand_bags.h"
#include "worker/strategies/home_tables.h"
#include "worker/strategies/ordered_rows.h"
#include "worker/strategies/round_rules.h"
#include "worker/strategies/step_services.h"
#include "worker/strategies/table_gathers.h"

namespace braid::worker {
namespace {

using Ints = std::vector<std::int64_t>;

ValueRef stop_vote(Graph& graph) { return add_node(graph, "braid.StopVote", "ps/stop_vote", {}); }

}  // namespace

RemoteTables::RemoteTables(const proto::Job& job, Runtime& runtime, const Peers& peers, std::string strategy)
    : runtime_(runtime),
      peers_(peers),
      strategy_(std::move(strategy)),
      seed_(job.seed()),
      bucket_bytes_(job.strategy().bucket_bytes()),
      examples_(batch_share(job, peers.rank, peers.world).rows()),
      pull_ahead_(job.strategy().ps().pull_ahead()),
      fills_(job.runtime().check_numerics()),
      cache_rows_(job.strategy().ps().cache_rows()),
      cache_age_(job.strategy().ps().cache_age()),
      rows_may_be_dense_(job.model().has_graph()),
      alone_(peers.world == 1 && !elastic_limits(job)),
      homes_(has_homes_of_rows(job, peers.world)),
      steps_in_flight_(job.runtime().steps_in_flight()),
      optimizers_(job) {
  runtime.services().provide<ps::PsClient>(peers.servers);
  // Servers have tables, whose moments stay float32.
  set_.optimizer = with_small_states(optimizers_.spec(0), 0, true);
  for (int g = 1; g <= optimizers_.groups(); ++g)
    set_.groups.push_back(with_small_states(optimizers_.spec(g), 0, true));
  set_.consistency = consistency_of(job.strategy());
  set_.workers = peers.world;
  set_.cached = cache_rows_ > 0;
  set_.staleness = std::max(job.strategy().staleness(), 1U);
  if (set_.consistency == ps::Consistency::Timed) set_.timed = timed_rule(job, peers.world);
}

RemoteTables::~RemoteTables() = default;

void RemoteTables::decide_home(const TrainingGraph& training) {
  if ((!alone_ && !homes_) || cache_rows_ <= 0 || !bsp()) return;
  auto ids = HomeTables::can_take(training, peers_.world);
  if (!ids) return;
  home_ = std::make_unique<HomeTables>(
      runtime_, peers_.servers,
      HomeTables::Options{.servers = peers_.servers ? peers_.servers->servers() : 1,
                          .rows = cache_rows_,
                          .steps = std::max<std::int64_t>(steps_in_flight_, 2),
                          .rank = peers_.rank,
                          .world = peers_.world},
      std::move(*ids));
  set_.consistency = ps::Consistency::Asp;  // there are no rounds: nothing is pushed
}

bool RemoteTables::means() const { return bsp() || set_.consistency == ps::Consistency::Timed; }

/// The tables' groups are the job's, and behind them the optimizers of the graph.
int RemoteTables::group_of(const TrainingGraph& training, const std::string& variable) {
  const auto own = training.own_optimizers.find(variable);
  if (own == training.own_optimizers.end()) return optimizers_.group_of(variable);
  const auto first = set_.groups.begin() + optimizers_.groups();
  const auto at = std::find(first, set_.groups.end(), own->second);
  const auto group = static_cast<int>(at - set_.groups.begin()) + 1;
  if (at == set_.groups.end()) set_.groups.push_back(own->second);
  return group;
}

/// Rows of a variable that is whole on the servers, since no rule makes its first values. Right only where
/// an update without a gradient changes nothing.
void RemoteTables::make_dense(TrainingGraph& training, VariableGradient& gradient) {
  const std::string& name = gradient.variable.name;
  const OptimizerSpec& spec = optimizer_of(training, optimizers_, name);
  if (spec.row_wise)
    throw InvalidArgument("variable '" + name +
                          "' is updated by rows and is no sparse table, so that servers " +
                          "hold it as a whole: optimizer.row_wise is for tables whose rows they make");
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

void RemoteTables::declare(TrainingGraph& training, VariableGradient& gradient) {
  if (gradient.slices && !gradient.variable.sparse && rows_may_be_dense_) make_dense(training, gradient);
  const VariableInfo& variable = gradient.variable;
  const Node& handle = training.graph.node(variable.handle);
  const int group = group_of(training, variable.name);
  if (variable.sparse && gradient.slices) {
    sparse_[variable.name] = static_cast<int>(set_.sparse.size());
    rows_.push_back(variable.shape[0]);
    set_.sparse.push_back({variable.name, variable.shape[1], variable_init_spec(handle),
                           make_rng_key(seed_, variable.name), former_name(training.graph, variable), group});
  } else if (gradient.slices) {
    throw InvalidArgument("variable '" + variable.name +
                          "' is updated by rows: on parameter servers it must be a sparse table "
                          "(model.sparse_tables: true)");
  } else {
    dense_[variable.name] = static_cast<int>(set_.dense.size());
    set_.dense.push_back(
        {variable.name, variable.shape.elements(), former_name(training.graph, variable), group});
  }
}

/// Whether they travel with the rows, so that a step has one request each way.
bool RemoteTables::fit_one_bucket(const std::vector<VariableGradient>& gradients) const {
  std::int64_t bytes = 0;
  for (const VariableGradient& gradient : gradients) {
    if (gradient.slices) return false;
    bytes += gradient.variable.shape.elements() * static_cast<std::int64_t>(sizeof(float));
  }
  return !gradients.empty() && bytes <= bucket_bytes_;
}

ValueRef RemoteTables::exchange(TrainingGraph& training, const std::vector<VariableGradient>& gradients,
                                bool says_vote) {
  if (home_) {
    homes_of(gradients).finish(training);
    return home_->votes();
  }
  ValueRef heard;
  OrderedRows ordered(training, {.servers = peers_.servers ? peers_.servers->servers() : 1,
                                 .versioned = !asp(),
                                 .ahead = bsp() && pull_ahead_,
                                 .fill = fills_,
                                 .cached = set_.cached});
  std::vector<VariableGradient> others;
  for (const VariableGradient& gradient : gradients) {
    if (sparse_.contains(gradient.variable.name) && OrderedRows::can_take(training.graph, gradient)) {
      ordered.add(gradient, sparse_.at(gradient.variable.name), slots_of(sparse_.at(gradient.variable.name)));
      continue;
    }
    if (gradient.slices && pads_indices(training.graph, gradient))
      throw InvalidArgument("variable '" + gradient.variable.name +
                            "': servers have columns of varying length of sparse tables alone, which only "
                            "lookups read: set model.sparse_tables: true");
    others.push_back(gradient);
  }
  const auto buckets = bucket_gradients(others, bucket_bytes_);
  const bool small = !ordered.empty() && fit_one_bucket(others);
  if (!ordered.empty()) {
    if (set_.cached) make_caches(ordered.tables());
    std::vector<OrderedRows::Dense> variables;
    for (const VariableGradient& gradient : others)
      if (small) variables.push_back({dense_.at(gradient.variable.name), {gradient.variable.handle, 0}});
    heard = ordered.pull(small || buckets.empty(), variables);
  }
  for (std::size_t b = 0; b < buckets.size() && !small; ++b) {
    // Forward needs the last bucket's variables first, so pulls are made in the reverse order.
    const std::size_t bucket = buckets.size() - 1 - b;
    std::vector<VariableInfo> variables;
    for (const auto& gradient : buckets[bucket]) variables.push_back(gradient.variable);
    const ValueRef votes = add_pull(training.graph, variables, "ps/pull" + std::to_string(b),
                                    {.versioned = !asp(), .insert = true, .votes = bucket == 0});
    if (bucket == 0) heard = votes;
  }
  const auto row_pushes = ordered.pushes(bucket_bytes_, examples_);
  const bool pushed_together = small && row_pushes.size() == 1;
  std::int64_t sequence = 0;
  for (std::size_t b = 0; b < buckets.size() && !pushed_together; ++b, ++sequence)
    add_push(training, buckets[b], b, says_vote && b == 0);
  std::vector<OrderedRows::Dense> gradients_beside;
  for (const VariableGradient& gradient : others)
    if (pushed_together) gradients_beside.push_back({dense_.at(gradient.variable.name), gradient.dense});
  for (const std::vector<int>& groups : row_pushes) {
    const bool first = sequence == 0;
    ordered.push(groups, sequence++, first ? examples_ : 0,
                 first && says_vote ? stop_vote(training.graph) : ValueRef{}, gradients_beside);
  }
  return heard;
}

HomeTables& RemoteTables::homes_of(const std::vector<VariableGradient>& gradients) {
  for (const VariableGradient& gradient : gradients) {
    const int table = sparse_.at(gradient.variable.name);
    home_->add(gradient, table, set_.optimizer_of(set_.sparse[static_cast<std::size_t>(table)].group));
  }
  return *home_;
}

std::size_t RemoteTables::slots_of(int table) const {
  const ps::SparseTableSpec& spec = set_.sparse[static_cast<std::size_t>(table)];
  return static_cast<std::size_t>(table_row_width(set_.optimizer_of(spec.group), spec.dim) - spec.dim);
}

void RemoteTables::make_caches(const std::vector<std::vector<int>>& groups) {
  if (!peers_.servers) return;  // the step is only looked at
  std::vector<ps::RowCache::Options> caches;
  for (const std::vector<int>& tables : groups) {
    ps::RowCache::Options& cache = caches.emplace_back();
    cache.rows = cache_rows_;
    if (!bsp()) cache.most_age = cache_age_;
    for (const int table : tables) {
      const ps::SparseTableSpec& spec = set_.sparse[static_cast<std::size_t>(table)];
      cache.dim = spec.dim;
      cache.optimizers.push_back(set_.optimizer_of(spec.group));
      cache.table_rows += rows_[static_cast<std::size_t>(table)];
    }
    cache.rows = std::min(cache.rows, cache.table_rows);
    cache.pool = &runtime_.pool();
  }
  cached_ = std::make_shared<CachedRows>(peers_.servers, std::move(caches), bsp());
  runtime_.services().provide<CachedRows>(cached_);
  runtime_.services().provide<KeptRows>(cached_);
}

void RemoteTables::rewrite_inference(Graph& graph) {
  expand_bags(graph, strategy_);
  std::vector<VariableInfo> sparse;
  for (const VariableInfo& variable : list_variables(graph)) {
    if (sparse_.contains(variable.name)) sparse.push_back(variable);
    if (dense_.contains(variable.name)) graph.mutable_node(variable.handle).device = "/device:CPU:0";
  }
  if (!sparse.empty()) add_pull(graph, sparse, "ps/pull", {});
}

/// Result: the votes, when it is asked for them.
ValueRef RemoteTables::add_pull(Graph& graph, const std::vector<VariableInfo>& variables,
                                const std::string& name, PullKind kind) {
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
  for (const VariableInfo& variable : variables)
    if (dense_.contains(variable.name)) read_behind(graph, {variable.handle, 0}, id);
  return {id, static_cast<int>(gathers.size())};
}

void RemoteTables::add_push(TrainingGraph& training, const std::vector<VariableGradient>& bucket,
                            std::size_t sequence, bool votes) {
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

// ---------------------------------------------------------------------------------------------- around steps

std::vector<Lane> RemoteTables::begin_trial(const WaitContext& wait) {
  if (are_homes()) return {};  // workers try different numbers of steps, and each step meets the others
  create(wait);
  servers().set_trial(true);
  return {Lane::Pull, Lane::Push};
}

void RemoteTables::end_trial() {
  if (!are_homes()) servers().set_trial(false);
  if (cached_) cached_->clear();
  if (home_) home_->clear();
}

void RemoteTables::create(const WaitContext& wait) {
  if (std::exchange(created_, true)) return;
  if (const auto* services = runtime_.services().find<StepServices>())
    set_.timed.rounds = services->total_steps.load();
  servers().create_tables(set_, wait);
}

bool RemoteTables::fill(const CheckpointInfo* restored, bool resume, const WaitContext& wait) {
  if (restored) {
    servers().restore(restored->directory, wait);
    return false;
  }
  if (resume && servers().started(wait)) return true;
  for (const auto& table : set_.dense) {
    const Tensor value = *runtime_.variables().read(table.name);
    servers().set_dense(table.name, value.data<float>(), wait);
  }
  return false;
}

void RemoteTables::write_back(const WaitContext& wait) {
  if (home_) home_->flush(steps_, wait);
}

void RemoteTables::refresh(const WaitContext& wait) {
  write_back(wait);
  std::vector<Tensor> values;
  ps::PullRequest all;
  all.min_version = means() ? steps_ : 0;
  all.insert = false;
  all.names_all = true;
  for (std::size_t t = 0; t < set_.dense.size(); ++t) {
    values.push_back(*runtime_.variables().read(set_.dense[t].name));
    all.dense.push_back({static_cast<int>(t), values.back().data<float>()});
  }
  std::vector<int> tables(set_.sparse.size());
  std::iota(tables.begin(), tables.end(), 0);
  const std::vector<std::int64_t> no_keys(static_cast<std::size_t>(servers().servers()));
  for (const int& table : tables) all.ordered.push_back({{{&table, 1}, nullptr, no_keys}, nullptr});
  servers().pull(std::move(all), wait);
  for (std::size_t t = 0; t < values.size(); ++t) runtime_.variables().write(set_.dense[t].name, values[t]);
}

void RemoteTables::finish_steps(const WaitContext& wait) {
  write_back(wait);
  servers().leave(wait);
  const ps::AheadCounts ahead = servers().ahead_counts();
  if (ahead.rows > 0)
    log_info("rows pulled ahead of their round: {}, {:.0f} % of them again as it had changed them",
             ahead.rows, 100 * static_cast<double>(ahead.repaired) / static_cast<double>(ahead.rows));
}

}  // namespace braid::worker
