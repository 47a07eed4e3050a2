// ALLREDUCE: every worker holds all variables; gradients are summed over the workers in buckets, on the comm
// stream, while backward goes on. Rows of embedding tables are gathered instead, so nothing of a table's size
// is sent. What else the workers' gradients can become, and what else they can share, are variations of this
// rewrite. MIRRORED is the same among replicas of a process.
//
//   strategy.reduction            another combination than the sum (combine_ops.h)
//   strategy.compression          less on the wire, with error feedback (compression_ops.h)
//   strategy.shard                slots and summed gradients spread over the workers (sharded_updates.h);
//                                 variables too: another rewrite (sharded_variables.cc)
//   strategy.sync_batch_norm      statistics of the global batch (sync_batch_norm.h)
//   strategy.average_every_steps  no gradients at all, but means of variables now and then (averaging_ops.h)
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "engine/ir/op.h"
#include "proto/job.pb.h"
#include "worker/input/batch_share.h"
#include "worker/job/optimizers.h"
#include "worker/job/spread.h"
#include "worker/step/clip_gradients.h"
#include "worker/step/loss_scale.h"
#include "worker/strategies/allreduce_ops.h"
#include "worker/strategies/collective.h"
#include "worker/strategies/combine.h"
#include "worker/strategies/combine_ops.h"
#include "worker/strategies/compression.h"
#include "worker/strategies/rank_states.h"
#include "worker/strategies/sharded_updates.h"
#include "worker/strategies/sharded_variables.h"
#include "worker/strategies/step_services.h"
#include "worker/strategies/sync_batch_norm.h"

namespace braid::worker {
namespace {

using proto::Compression;

class AllReduceStrategy : public CollectiveStrategy {
 public:
  AllReduceStrategy(const proto::Job& job, Runtime& runtime, const Peers& peers)
      : CollectiveStrategy(job, runtime, peers),
        strategy_(job.strategy()),
        optimizers_(job),
        clip_norm_(job.optimizer().clip_norm()),
        scales_loss_(loss_scale_of(job).has_value()),
        share_{job.input().global_batch_size(), peers.rank, peers.world},
        on_host_(job.runtime().device() != proto::Runtime::CUDA) {
    check();
  }

  std::string_view name() const override {
    return strategy_.kind() == proto::Strategy::MIRRORED ? "MIRRORED" : "ALLREDUCE";
  }

  bool weighs_gradients() const override {
    return strategy_.reduction() == proto::Strategy::MEAN && !averages();
  }
  float gradient_scale() const override {
    const bool is_mean = strategy_.reduction() == proto::Strategy::MEAN ||
                         strategy_.reduction() == proto::Strategy::WORKER_MEAN;
    return is_mean && !averages() ? CollectiveStrategy::gradient_scale() : 1.0F;
  }

  void rewrite_training(TrainingGraph& training) override {
    std::vector<RankState> states;
    if (strategy_.sync_batch_norm()) order_later(synchronize_batch_norms(training.graph));
    if (averages())
      update_alone(training);
    else
      update_together(training, states);
    if (strategy_.sync_batch_norm()) order_by_readiness(training.graph);
    if (strategy_.has_elastic()) write_behind_collectives(training.graph);
    states_ = std::make_shared<RankStates>(std::move(states), peers_.communicator, runtime_.variables());
  }

  std::uint64_t start(const CheckpointInfo* restored, bool resume, std::uint64_t step,
                      const WaitContext& wait) override {
    const std::uint64_t first = CollectiveStrategy::start(restored, resume, step, wait);
    states_->restore(restored, wait);
    return first;
  }
  std::vector<ShardInfo> save_remote(const std::filesystem::path& directory, std::uint64_t,
                                     const std::string&, const WaitContext& wait) override {
    if (states_->empty()) return {};
    return {states_->save(directory, wait)};
  }
  bool saves_local_variable(const std::string& name) const override { return !states_->has(name); }
  void meet_at_border(const WaitContext& wait) override {
    if (states_->empty()) return;
    if (peers_.leader())
      states_->release(wait);
    else
      states_->serve(services_->peer_deadline);
  }
  void finish_steps(const WaitContext& wait) override {
    if (states_->empty()) return CollectiveStrategy::finish_steps(wait);
    if (!peers_.leader()) states_->serve(services_->peer_deadline);
  }
  void shut_down(bool terminated, const WaitContext& wait) override {
    // All is done and saved: a worker that is gone by now is no reason to fail.
    try {
      if (!states_->empty() && peers_.leader()) states_->release(wait);
    } catch (const Error& error) {
      log_warning("the workers do not end together: {}", error.message());
    }
    CollectiveStrategy::shut_down(terminated, wait);
  }

 protected:
  bool is_shared(const std::string& variable) const override { return !states_->has(variable); }

 private:
  bool averages() const { return strategy_.average_every_steps() > 0; }
  bool combines() const { return strategy_.reduction() >= proto::Strategy::ADASUM; }
  bool sorts() const { return strategy_.reduction() >= proto::Strategy::MEDIAN; }
  bool compresses() const { return strategy_.compression().kind() != Compression::NONE && peers_.world > 1; }
  bool shards() const { return strategy_.shard() != proto::Strategy::NOTHING; }

  /// Before anything is built.
  void check() const {
    const auto needs_host = [&](bool used, const std::string& what, bool host) {
      if (used && !host)
        throw InvalidArgument(
            what + " has kernels for the CPU only: " +
            (on_device_ ? "strategy.backend must be RING or MPI" : "runtime.device must be CPU"));
    };
    needs_host(combines(), "strategy.reduction " + proto::Strategy::Reduction_Name(strategy_.reduction()),
               !on_device_);
    needs_host(compresses(), "strategy.compression", on_host_ && !on_device_);
    needs_host(shards(), "strategy.shard", on_host_ && !on_device_);
    needs_host(strategy_.sync_batch_norm(), "strategy.sync_batch_norm", on_host_ && !on_device_);
    needs_host(averages(), "strategy.average_every_steps", on_host_ && !on_device_);
    refuse_with_halves();
    if (strategy_.reduction() == proto::Strategy::TRIMMED_MEAN &&
        2 * std::int64_t{strategy_.trim()} >= peers_.world)
      throw InvalidArgument("strategy.trim is " + std::to_string(strategy_.trim()) +
                            ": of each element the values of " + std::to_string(2 * strategy_.trim()) +
                            " workers are left out, and there are " + std::to_string(peers_.world));
  }

  /// What reads a worker's gradients before they are divided by the scale of the loss, or updates without
  /// them, and what has a wire of its own.
  void refuse_with_halves() const {
    const std::string what =
        combines()     ? "strategy.reduction " + proto::Strategy::Reduction_Name(strategy_.reduction())
        : compresses() ? "strategy.compression"
        : shards()     ? "strategy.shard"
        : averages()   ? "strategy.average_every_steps"
                       : "";
    if (what.empty()) return;
    if (scales_loss_)
      throw InvalidArgument(what +
                            " does not go with runtime.precision FP16, which scales the loss: set BF16");
    if (wire_ != DType::Float32)
      throw InvalidArgument(what + " does not go with strategy.wire: leave one out");
  }

  // ------------------------------------------------------------------------------ updates of all workers'
  // gradients

  void update_together(TrainingGraph& training, std::vector<RankState>& states) {
    ShardedUpdates sharded(training, peers_.world, [&](Node node, const char* op) {
      return add_collective(training.graph, std::move(node), op);
    });
    std::vector<VariableGradient> reduced;
    const auto buckets = bucket_gradients(training.gradients, bucket_bytes_);
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      std::vector<VariableGradient> dense;
      for (const auto& gradient : buckets[b]) {
        if (gradient.slices)
          reduced.push_back(gather_and_combine(training, gradient));
        else
          dense.push_back(gradient);
      }
      if (shards())
        shard(training, sharded, dense, b, states);
      else
        std::ranges::move(reduce(training, dense, b, states), std::back_inserter(reduced));
    }
    unscale_gradients(training, reduced);
    clip(training, sharded, reduced);
    for (const auto& gradient : reduced)
      add_update(training, gradient, optimizer_of(training, optimizers_, gradient.variable.name));
    std::ranges::move(sharded.add_updates(), std::back_inserter(states));
  }

  /// The bucket's dense gradients of all workers, as one.
  std::vector<VariableGradient> reduce(TrainingGraph& training, const std::vector<VariableGradient>& dense,
                                       std::size_t bucket, std::vector<RankState>& states) {
    if (combines()) return combine(training, dense, bucket);
    if (!compresses()) return reduce_bucket(training, dense, bucket);
    reduce_bucket(training, {}, bucket);  // the riders
    return compress(training, dense, bucket, states);
  }

  void shard(TrainingGraph& training, ShardedUpdates& sharded, const std::vector<VariableGradient>& dense,
             std::size_t bucket, std::vector<RankState>& states) {
    const bool scatter = strategy_.shard() == proto::Strategy::GRADIENTS;
    std::vector<VariableGradient> gradients = dense;
    if (scatter)
      reduce_bucket(training, {}, bucket);
    else
      gradients = reduce(training, dense, bucket, states);
    const auto spec_of = [&](const VariableGradient& gradient) -> const OptimizerSpec& {
      return optimizer_of(training, optimizers_, gradient.variable.name);
    };
    for (const auto& part : split_by_optimizer(gradients, spec_of))
      sharded.add_bucket(part, spec_of(part.front()), scatter);
  }

  /// A rank has half the squares of its parts only.
  void clip(TrainingGraph& training, ShardedUpdates& sharded, std::vector<VariableGradient>& reduced) {
    if (!shards()) return clip_by_global_norm(training, reduced, clip_norm_, true);
    std::vector<VariableGradient> all = sharded.parts();
    const std::size_t parts = all.size();
    all.insert(all.end(), reduced.begin(), reduced.end());
    clip_by_global_norm(training, all, clip_norm_, true, [&](std::vector<ValueRef>& halves) {
      if (parts == 0) return;
      Node node;
      node.name = training.graph.unique_name("all_reduce/norms");
      node.inputs.assign(halves.begin(), halves.begin() + static_cast<std::ptrdiff_t>(parts));
      const NodeId id = add_collective(training.graph, std::move(node), "braid.AllReduce");
      for (std::size_t i = 0; i < parts; ++i) halves[i] = {id, static_cast<int>(i)};
    });
    std::copy(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(parts), sharded.parts().begin());
    std::copy(all.begin() + static_cast<std::ptrdiff_t>(parts), all.end(), reduced.begin());
  }

  AttrMap combination() const {
    const Combination how = strategy_.reduction() == proto::Strategy::ADASUM   ? Combination::Adasum
                            : strategy_.reduction() == proto::Strategy::MEDIAN ? Combination::Median
                                                                               : Combination::TrimmedMean;
    return {{kCombination, static_cast<std::int64_t>(how)},
            {kTrim, static_cast<std::int64_t>(strategy_.trim())}};
  }

  /// A loss that is wrong on some workers goes the way of their gradients where that bears them.
  std::vector<VariableGradient> combine(TrainingGraph& training, const std::vector<VariableGradient>& dense,
                                        std::size_t bucket) {
    Graph& graph = training.graph;
    const bool takes_loss = bucket == 0 && sorts();
    if (!takes_loss) reduce_bucket(training, {}, bucket);
    Node node;
    for (const VariableGradient& gradient : dense) node.inputs.push_back(gradient.dense);
    if (takes_loss) node.inputs.push_back(training.loss);
    std::vector<VariableGradient> combined = dense;
    if (node.inputs.empty()) return combined;
    node.name = graph.unique_name("combine/bucket" + std::to_string(bucket));
    node.attrs = combination();
    const NodeId id = add_collective(graph, std::move(node), "braid.CombineGradients");
    for (std::size_t i = 0; i < dense.size(); ++i) combined[i].dense = {id, static_cast<int>(i)};
    if (takes_loss) {
      training.loss = {id, static_cast<int>(dense.size())};
      Node votes;
      votes.name = graph.unique_name("all_reduce/votes");
      votes.inputs = {stop_vote(graph)};
      training.stop_votes = {add_collective(graph, std::move(votes), "braid.AllReduce"), 0};
    }
    return combined;
  }

  std::vector<VariableGradient> compress(TrainingGraph& training, const std::vector<VariableGradient>& dense,
                                         std::size_t bucket, std::vector<RankState>& states) {
    if (dense.empty()) return {};
    Graph& graph = training.graph;
    const Compression& how = strategy_.compression();
    Node node;
    node.name = graph.unique_name("compressed/bucket" + std::to_string(bucket));
    std::vector<ValueRef> errors, thin;
    std::vector<std::int64_t> ranks;
    for (const VariableGradient& gradient : dense) {
      const VariableInfo& variable = gradient.variable;
      node.inputs.push_back(gradient.dense);
      if (how.kind() == Compression::POWER_SGD) {
        const std::int64_t n = variable.shape.rank() < 2 ? 1 : variable.shape[0];
        const std::int64_t m = n == 0 ? 0 : variable.shape.elements() / n;
        ranks.push_back(n < 2 ? 0 : power_rank(n, m, how.rank()));
        if (ranks.back() == 0) continue;
        thin.push_back(add_state(graph, variable.name + "/power_q", Shape{m, ranks.back()}, -1, 1));
      }
      RankState state{variable.name + "/error"};
      errors.push_back(add_state(graph, state.variable, variable.shape, 0, 0));
      states.push_back(std::move(state));
    }
    node.inputs.insert(node.inputs.end(), errors.begin(), errors.end());
    node.inputs.insert(node.inputs.end(), thin.begin(), thin.end());
    node.attrs = {{"compression", static_cast<std::int64_t>(how.kind())},
                  {"block", how.block()},
                  {"keep", how.keep()},
                  {"ranks", ranks}};
    const NodeId id = add_collective(graph, std::move(node), "braid.CompressedAllReduce");
    std::vector<VariableGradient> reduced = dense;
    for (std::size_t i = 0; i < dense.size(); ++i) reduced[i].dense = {id, static_cast<int>(i)};
    return reduced;
  }

  VariableGradient gather_and_combine(TrainingGraph& training, const VariableGradient& own) {
    if (combines() && pads_indices(training.graph, own))
      throw InvalidArgument("variable '" + own.variable.name +
                            "': columns of varying length are combined by strategy.reduction MEAN, SUM and "
                            "WORKER_MEAN alone: use one of these, or give them a fixed length");
    VariableGradient gradient = gather_rows(training, own);
    if (!combines()) return gradient;
    AttrMap attrs = combination();
    if (const auto rows = training.slice_rows.find(gradient.variable.name); rows != training.slice_rows.end())
      attrs.set(kIndexRows, rows->second.indices);
    attrs.set("world", static_cast<std::int64_t>(peers_.world));
    attrs.set("rows", gradient.variable.shape[0]);
    gradient.slices->values =
        add_node(training.graph, "braid.CombineRows", "combine/" + gradient.variable.name,
                 {gradient.slices->indices, gradient.slices->values}, std::move(attrs));
    return gradient;
  }

  // --------------------------------------------------------------------------------- updates of each
  // worker's own

  void update_alone(TrainingGraph& training) {
    Graph& graph = training.graph;
    clip_by_global_norm(training, training.gradients, clip_norm_, true);
    std::map<std::string, NodeId> updates;
    for (const VariableGradient& gradient : training.gradients) {
      add_update(training, gradient, optimizer_of(training, optimizers_, gradient.variable.name));
      updates[gradient.variable.name] = graph.size() - 1;
    }
    std::vector<VariableGradient> whole = training.gradients;
    for (VariableGradient& gradient : whole) gradient.slices.reset();  // a table's mean is of all its rows
    const auto buckets = bucket_gradients(whole, bucket_bytes_);
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      Node node;
      node.name = graph.unique_name("average/bucket" + std::to_string(b));
      for (const VariableGradient& gradient : buckets[b]) {
        const Node& update = graph.node(updates.at(gradient.variable.name));
        std::copy_if(update.inputs.begin(), update.inputs.end(), std::back_inserter(node.inputs),
                     [&](ValueRef input) { return graph.info(input).dtype == DType::Resource; });
        node.control_inputs.push_back(update.id);
      }
      if (b == 0) node.inputs.insert(node.inputs.end(), {training.loss, stop_vote(graph)});
      node.attrs = {{"every", static_cast<std::int64_t>(strategy_.average_every_steps())},
                    {"weight", static_cast<double>(share_.rows()) / static_cast<double>(share_.global_rows)},
                    {"riders", b == 0}};
      training.targets.push_back(node.name);
      const NodeId id = add_collective(graph, std::move(node), "braid.AverageVariables");
      if (b == 0) {
        training.loss = {id, 0};
        training.stop_votes = {id, 1};
      }
    }
  }

  const proto::Strategy strategy_;
  const Optimizers optimizers_;
  const float clip_norm_;
  const bool scales_loss_;
  const BatchShare share_;
  const bool on_host_;
  std::shared_ptr<RankStates> states_;
};

}  // namespace

std::unique_ptr<Strategy> make_allreduce_strategy(const proto::Job& job, Runtime& runtime,
                                                  const Peers& peers) {
  if (spreads_variables(job)) return make_sharded_variables_strategy(job, runtime, peers);
  return std::make_unique<AllReduceStrategy>(job, runtime, peers);
}

}  // namespace braid::worker
