// HYBRID: embedding tables are spread over the workers (hybrid_plan.h), every other variable is on all of
// them, as under ALLREDUCE. Ids go to the workers that hold their rows and rows come back, gradients of rows
// likewise (hybrid_rewrite.h); dense gradients are summed over the workers in buckets. What the leader needs
// of others' rows between steps, for evaluations and checkpoints, they serve (table_service.h).
#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "engine/device/accelerator.h"
#include "engine/ir/op.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/state/variable_init.h"
#include "engine/program/program.h"
#include "proto/job.pb.h"
#include "worker/checkpoint/stored_variables.h"
#include "worker/job/optimizers.h"
#include "worker/step/whole_updates.h"
#include "worker/strategies/allreduce_ops.h"
#include "worker/strategies/bucket_places.h"
#include "worker/strategies/clip_parts.h"
#include "worker/strategies/distinct_rewrite.h"
#include "worker/strategies/expand_bags.h"
#include "worker/strategies/hot_rows.h"
#include "worker/strategies/hybrid_plan.h"
#include "worker/strategies/hybrid_rewrite.h"
#include "worker/strategies/hybrid_tables.h"
#include "worker/strategies/ids_ahead.h"
#include "worker/strategies/owner_rewrite.h"
#include "worker/strategies/replicated_rows.h"
#include "worker/strategies/served_strategy.h"
#include "worker/strategies/step_prediction.h"
#include "worker/strategies/step_services.h"
#include "worker/strategies/table_decision.h"
#include "worker/strategies/table_files.h"
#include "worker/strategies/table_gathers.h"
#include "worker/strategies/table_service.h"

namespace braid::worker {
namespace {

constexpr std::chrono::seconds kPeerDeadline{60};
/// Whether GPUs send distinct rows (distinct_rewrite.h). On two H200 the losses are right and steps are
/// slower than with all ids (docs/design/adr/0031-rows-chosen-by-numbers-on-the-gpu.md).
constexpr bool kDistinctOnDevices = false;
constexpr std::int64_t kDevicePieceBytes = std::int64_t{4} << 20;  // less is not worth a meeting of GPUs
constexpr std::int64_t kRowPieceBytes = std::int64_t{64} << 20;    // the same of rows, behind lookups

/// Of the rows, or sums of bags, that a rank has read.
double gradient_bytes(const PlannedTable& table) {
  const std::int64_t rows = table.bags > 0 ? table.bags : table.ids_of_step();
  return sizeof(float) * static_cast<double>(rows * table.shard.dim);
}

class HybridStrategy : public ServedStrategy {
 public:
  HybridStrategy(const proto::Job& job, Runtime& runtime, const Peers& peers)
      : ServedStrategy(job, runtime, peers),
        job_(job),
        strategy_(job_.strategy()),
        seed_(job.seed()),
        fills_(job.runtime().check_numerics()),
        optimizers_(job),
        clip_norm_(job.optimizer().clip_norm()) {
    if (job.checkpoint().every_seconds() > 0 && !job.checkpoint().directory().empty() && peers.world > 1)
      throw InvalidArgument(
          "checkpoint.every_seconds: under strategy HYBRID all workers write a checkpoint together, after a "
          "step that all know: set checkpoint.every_steps");
  }

  std::string_view name() const override { return "HYBRID"; }
  bool ranks_differ() const override { return true; }

  /// In the order of collectives: ids, rows, ids of the next step where these travel ahead, buckets of dense
  /// gradients as backward makes them. Gradients of rows come before the last bucket: that has the first
  /// layers' weights, whose gradients are made beside theirs, and what follows of rows, their updates, takes
  /// longer.
  void rewrite_training(TrainingGraph& training) override {
    std::vector<VariableGradient> rows, dense;
    for (const VariableGradient& gradient : training.gradients)
      (gradient.slices ? rows : dense).push_back(gradient);
    make_plan(training, rows);
    for (std::size_t t = 0; t < shards_.size(); ++t)
      if (!shards_[t].all_ids || !pools_at_owner(training.graph, rows[t].variable))
        expand_bags(training.graph, rows[t].variable, name());
    std::vector<VariableGradient> hot_rows = split_hot_tables(training, rows);
    const auto add = [&](Node node, const char* op) {
      return add_collective(training.graph, std::move(node), op);
    };
    HybridRewrite rewrite(training, add, fills_);
    OwnerRewrite owners(training, add, looks_ahead(job_));
    DistinctRewrite by_distinct(training, add, fills_);
    ReplicatedRows replicated(training);
    Ways ways = ways_of(training.graph, rows, hot_rows, replicated);
    if (!by_distinct.look_up(ways.distinct)) std::ranges::move(ways.distinct, std::back_inserter(ways.whole));
    owners.look_up(ways.whole, on_device_ ? kRowPieceBytes : std::numeric_limits<std::int64_t>::max());
    rewrite.look_up(ways.in_lists, ways.rows_in_lists);
    by_distinct.exchange_next_ids();
    owners.exchange_next_ids();
    dense.insert(dense.begin(), ways.in_buckets.begin(), ways.in_buckets.end());
    std::vector<VariableGradient> reduced;
    auto buckets = bucket_gradients(dense, bucket_bytes_);
    if (buckets.empty()) buckets.emplace_back();  // the loss and the votes need one
    const auto reduce = [&](std::size_t bucket) {
      for (VariableGradient& gradient : reduce_bucket(training, buckets[bucket], bucket))
        reduced.push_back(std::move(gradient));
    };
    const std::size_t before =
        buckets_before_rows(training.graph, buckets, owners.gradients(), owners.travelling_bytes());
    for (std::size_t b = 0; b < before; ++b) reduce(b);
    for (VariableGradient& gradient : rewrite.exchange_gradients()) reduced.push_back(std::move(gradient));
    std::ranges::move(sum_in_rank_order(training, std::move(ways.hot_sums)), std::back_inserter(reduced));
    std::vector<VariableGradient> at_owners = by_distinct.exchange_gradients(piece_bytes());
    std::ranges::move(owners.exchange_gradients(piece_bytes()), std::back_inserter(at_owners));
    for (std::size_t b = before; b < buckets.size(); ++b) reduce(b);
    replicated.take_sums(reduced);
    const auto first_whole = reduced.size();
    std::ranges::move(at_owners, std::back_inserter(reduced));
    clip_over_ranks(
        training, reduced, clip_norm_, [this](const std::string& name) { return table_of(name) >= 0; }, add);
    for (std::size_t g = 0; g < reduced.size(); ++g) {
      const VariableGradient& gradient = reduced[g];
      add_update(training, gradient, optimizer_of(training, optimizers_, gradient.variable.name));
      if (gradient.slices && g < first_whole)
        training.graph.mutable_node(training.graph.size() - 1).attrs.set(kSkipNegative, true);
    }
    service_ =
        std::make_shared<TableService>(shards_, peers_.communicator, runtime_.variables(), runtime_.device());
    runtime_.services().provide<TableService>(service_);
  }

  /// On the leader, while the others serve it.
  void rewrite_inference(Graph& graph) override {
    expand_bags(graph, name());
    for (const VariableInfo& variable : list_variables(graph)) {
      const int table = table_of(variable.name);
      if (table < 0) continue;
      for (NodeId id = 0, nodes = graph.size(); id < nodes; ++id) {
        const Node& gather = graph.node(id);
        if (gather.removed || gather.op->name != "ResourceGather" ||
            gather.inputs[0] != ValueRef{variable.handle, 0})
          continue;
        const ValueRef rows =
            add_node(graph, "braid.ServedRows", gather.name + "/served", {gather.inputs[1]},
                     {{"table", static_cast<std::int64_t>(table)}, {"dim", variable.shape[1]}});
        // One request at a time.
        if (last_served_ != kNoNode) graph.mutable_node(rows.node).control_inputs.push_back(last_served_);
        last_served_ = rows.node;
        graph.replace_uses({id, 0}, rows);
      }
    }
    last_served_ = kNoNode;
  }

  void prepare(bool resume, const WaitContext& wait) override {
    resume_ = resume;
    wait_for_leader_ = wait;
  }
  void look_at_batches(const BatchValues& values) override { batches_ = values; }
  std::string describe(const Program& step) const override {
    if (tables_.empty()) return {};
    return plan_text(costs_, tables_) + prediction_text(costs_, prediction(step));
  }
  std::string describe_json(const Program& step) const override {
    if (tables_.empty()) return {};
    return prediction_json(costs_, tables_, prediction(step));
  }
  bool takes_initial_value(const std::string& variable, const Tensor& whole) override {
    if (table_of(variable) < 0) return false;
    given_.emplace(variable, whole);
    return true;
  }
  Shape whole_shape(const std::string& name, const Shape& local) const override {
    if (is_of_ids_ahead(name)) return {};
    const int table = table_of(name);
    if (table < 0) return local;
    const TableShard& shard = shards_[static_cast<std::size_t>(table)];
    if (shard.row_wise && name != shard.name) return {shard.rows};
    return {shard.rows, shard.dim};
  }

  std::uint64_t start(const CheckpointInfo* restored, bool resume, std::uint64_t step,
                      const WaitContext& wait) override {
    agree_on_checkpoint(restored, wait);
    initialize_tables(shards_, given_, seed_, runtime_);
    given_.clear();
    if (restored) restore_tables(shards_, *restored, runtime_.variables());
    return ServedStrategy::start(restored, resume, step, wait);
  }

  bool saves_local_variable(const std::string& name) const override {
    return table_of(name) < 0 && !hot_variables_.contains(name) && !is_of_ids_ahead(name);
  }

 protected:
  RankService& service() override { return *service_; }
  /// Bytes of gradients of rows that travel in one exchange.
  std::int64_t piece_bytes() const {
    return on_device_ ? std::max(bucket_bytes_, kDevicePieceBytes) : bucket_bytes_;
  }

  bool is_shared(const std::string& variable) const override {
    return table_of(variable) < 0 && !is_of_ids_ahead(variable);
  }

 private:
  struct HotTable {
    TableShard rows;
    bool sums_densely;
  };
  /// What goes which way: lists, whole tables' ids or their distinct rows, dense gradients.
  struct Ways {
    std::vector<const TableShard*> in_lists;
    std::vector<VariableGradient> rows_in_lists;
    std::vector<OwnerRewrite::Table> whole, distinct;
    std::vector<VariableGradient> in_buckets, hot_sums;
  };

  /// Whether ids of whole tables travel a step ahead where the job does not say how.
  bool sends_all() const { return on_device_ || sends_distinct_; }

  StepPrediction prediction(const Program& step) const {
    return predict_step(costs_, peers_.world, predict_tables(strategy_, sends_all(), costs_, tables_), step);
  }

  void make_plan(const TrainingGraph& training, const std::vector<VariableGradient>& gradients) {
    tables_ = list_tables(training, gradients, optimizers_, peers_);
    const proto::Runtime::Precision precision = job_.runtime().precision();
    if (precision == proto::Runtime::BF16 || precision == proto::Runtime::FP16)
      for (PlannedTable& table : tables_) table.number_bytes = 2;
    const WaitContext wait =
        wait_for_leader_ ? *wait_for_leader_
                         : WaitContext::with_timeout(services_ ? services_->peer_deadline : kPeerDeadline);
    if (peers_.world > 1 && strategy_.hybrid().ids() == proto::Hybrid::AUTO && looks_ahead(job_) &&
        (kDistinctOnDevices || !on_device_))
      sends_distinct_ = peers_.communicator ? peers_.communicator->exchanges_rows(wait) : on_device_;
    std::string card = peers_.card;
    if (card.empty() && on_device_) card = runtime_.device() ? runtime_.device()->description() : "H100";
    costs_ = decide_tables(
        {.job = job_,
         .peers = peers_,
         .on_device = sends_all(),
         .resume = resume_,
         .costs = card_costs(card),
         .wait = wait,
         .choose_hot_rows =
             [&](std::vector<PlannedTable>& tables) { choose_hot_rows(training.graph, batches_, tables); }},
        tables_);
    batches_ = {};
    for (const PlannedTable& table : tables_) shards_.push_back(table.shard);
    for (std::size_t t = 0; t < shards_.size(); ++t) {
      if (!shards_[t].sharded()) continue;
      parts_[shards_[t].name] = static_cast<int>(t);
      for (const std::string& slot : shards_[t].slots)
        parts_[shards_[t].name + "/" + slot] = static_cast<int>(t);
    }
  }

  /// `rows`: of shards_; `hot_rows`: of hot_tables_.
  Ways ways_of(const Graph& graph, const std::vector<VariableGradient>& rows,
               const std::vector<VariableGradient>& hot_rows, ReplicatedRows& replicated) const {
    Ways ways;
    const auto goes_distinct = [&](std::size_t t) {
      return sends_distinct_ && std::ssize(ways.distinct) < DistinctRewrite::most_tables(peers_.world) &&
             DistinctRewrite::is_possible(graph, shards_[t], rows[t]);
    };
    for (std::size_t t = 0; t < shards_.size(); ++t) {
      if (!shards_[t].all_ids) {
        ways.in_lists.push_back(&shards_[t]);
        ways.rows_in_lists.push_back(rows[t]);
      } else if (!shards_[t].sharded()) {
        std::ranges::move(replicated.dense_of(rows[t]), std::back_inserter(ways.in_buckets));
      } else {
        (goes_distinct(t) ? ways.distinct : ways.whole)
            .push_back({&shards_[t], rows[t], gradient_bytes(tables_[t]),
                        static_cast<double>(tables_[t].ids_of_step())});
      }
    }
    for (std::size_t h = 0; h < hot_rows.size(); ++h) {
      if (hot_tables_[h].sums_densely) {
        std::ranges::move(replicated.dense_of(hot_rows[h]), std::back_inserter(ways.hot_sums));
        continue;
      }
      ways.in_lists.push_back(&hot_tables_[h].rows);
      ways.rows_in_lists.push_back(hot_rows[h]);
    }
    return ways;
  }

  std::vector<VariableGradient> sum_in_rank_order(TrainingGraph& training,
                                                  std::vector<VariableGradient> gradients) {
    if (gradients.empty()) return gradients;
    Node node;
    node.name = training.graph.unique_name("all_reduce/hot_rows");
    node.attrs.set(kRankOrder, true);
    for (const VariableGradient& gradient : gradients) node.inputs.push_back(gradient.dense);
    const NodeId id = add_collective(training.graph, std::move(node), "braid.AllReduce");
    for (std::size_t g = 0; g < gradients.size(); ++g) gradients[g].dense = {id, static_cast<int>(g)};
    return gradients;
  }

  /// Of tables that have such; their gradients. What is of the table stays in `rows`.
  std::vector<VariableGradient> split_hot_tables(TrainingGraph& training,
                                                 std::vector<VariableGradient>& rows) {
    std::vector<VariableGradient> hot;
    for (std::size_t t = 0; t < shards_.size(); ++t) {
      const TableShard& table = shards_[t];
      if (table.hot.empty()) continue;
      hot.push_back(split_hot_rows(training, table, rows[t]));
      hot_tables_.push_back({hot_table(table), tables_[t].sums_hot_densely(on_device_)});
      const std::string& name = hot_tables_.back().rows.name;
      // Hot rows have the states that the table's other rows have.
      training.own_optimizers.emplace(
          name, with_small_states(optimizer_of(training, optimizers_, table.name), 0, true));
      hot_variables_.insert(name);
      for (const std::string& slot : table.slots) hot_variables_.insert(name + "/" + slot);
    }
    return hot;
  }

  /// The table of which this variable is this rank's part, or a slot of that; -1: it is none.
  int table_of(const std::string& variable) const {
    const auto at = parts_.find(variable);
    return at == parts_.end() ? -1 : at->second;
  }

  const proto::Job job_;
  const proto::Strategy& strategy_;
  const std::uint64_t seed_;
  const bool fills_;
  const Optimizers optimizers_;
  const float clip_norm_;
  std::vector<PlannedTable> tables_;
  std::vector<TableShard> shards_;       // of tables_
  std::deque<HotTable> hot_tables_;      // their hot rows
  std::set<std::string> hot_variables_;  // and slots of these
  BatchValues batches_;                  // null: there are none to be looked at
  std::map<std::string, int> parts_;     // sharded tables and their slots
  StepCosts costs_;                      // that the plans were made with
  bool sends_distinct_ = false;          // of whole tables' rows
  std::map<std::string, Tensor> given_;  // first values of tables that do not have their initialiser's
  std::shared_ptr<TableService> service_;
  NodeId last_served_ = kNoNode;
  bool resume_ = false;
  std::optional<WaitContext> wait_for_leader_;  // absent: as for any word of a peer
};

}  // namespace

std::unique_ptr<Strategy> make_hybrid_strategy(const proto::Job& job, Runtime& runtime, const Peers& peers) {
  return std::make_unique<HybridStrategy>(job, runtime, peers);
}

}  // namespace braid::worker
