// What a strategy has on parameter servers: which tables, the pulls and pushes of a step, and what happens to
// them around steps. Of dense variables each worker has a copy that a pull overwrites; embedding tables
// (VariableInfo::sparse) exist on the servers only, and a gather from one becomes a pull of its rows.
// Gradients are pushed in buckets; what one bucket pushes, one pull fetches in the next step. Tables that
// gathers alone read have a pull and a push of their own (ordered_rows.h), whose keys are made in the stage
// and whose rows may be pulled a step ahead. Thread rule: as Strategy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ps/client/ps_client.h"
#include "worker/job/optimizers.h"
#include "worker/step/training_graph.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {

class CachedRows;
class HomeTables;

class RemoteTables {
 public:
  /// `strategy`: its name, for errors. All outlive it.
  RemoteTables(const proto::Job& job, Runtime& runtime, const Peers& peers, std::string strategy);
  ~RemoteTables();

  bool bsp() const { return set_.consistency == ps::Consistency::Bsp; }
  bool asp() const { return set_.consistency == ps::Consistency::Asp; }
  /// An update is of all workers' gradients.
  bool means() const;

  /// Decides whether the job's workers are the homes of all rows (home_tables.h). REQUIRES: before declare();
  /// bags are expanded.
  void decide_home(const TrainingGraph& training);
  bool is_home() const { return home_ != nullptr; }
  /// Each of several is.
  bool are_homes() const { return home_ && !alone_; }

  /// The gradient's variable is on the servers from now on. Throws: InvalidArgument where they cannot hold
  /// it.
  void declare(TrainingGraph& training, VariableGradient& gradient);
  bool empty() const { return dense_.empty() && sparse_.empty(); }
  bool holds(const std::string& variable) const {
    return dense_.contains(variable) || sparse_.contains(variable);
  }

  /// Pulls and pushes of these variables. The first pull of all has the votes, which are the result; the
  /// first push carries this worker's, where `says_vote`. REQUIRES: declare() of each.
  ValueRef exchange(TrainingGraph& training, const std::vector<VariableGradient>& gradients, bool says_vote);
  /// In its place where each of several workers is a home: of tables that declare() was called of.
  HomeTables& homes_of(const std::vector<VariableGradient>& gradients);
  /// Dense variables are refreshed as a whole, and on the host, where pulls write them in training; rows are
  /// pulled as they are read.
  void rewrite_inference(Graph& graph);

  /// As of Strategy. REQUIRES: exchange().
  std::vector<Lane> begin_trial(const WaitContext& wait);
  void end_trial();
  /// Makes the tables on the servers; on all workers. Idempotent.
  void create(const WaitContext& wait);
  /// On the leader: gives them the values of `restored`, else of the local store, or with `resume` leaves
  /// those that they have from an earlier leader. Result: whether it left such.
  bool fill(const CheckpointInfo* restored, bool resume, const WaitContext& wait);
  /// Of each step, at its end.
  void end_step(std::uint64_t step) { steps_ = step + 1; }
  /// Dense variables of the local store are as the servers have them; BSP: waits until these have the rounds
  /// of all steps that have ended here, in rows, too.
  void refresh(const WaitContext& wait);
  void finish_steps(const WaitContext& wait);
  /// The servers have the rows of all steps that have ended, wherever their home is. REQUIRES: no step is
  /// running.
  void write_back(const WaitContext& wait);
  ps::PsClient& servers() const { return *peers_.servers; }

 private:
  struct PullKind {
    bool versioned = false;
    bool insert = false;
    bool votes = false;
  };

  int group_of(const TrainingGraph& training, const std::string& variable);
  std::size_t slots_of(int table) const;
  void make_caches(const std::vector<std::vector<int>>& groups);
  void make_dense(TrainingGraph& training, VariableGradient& gradient);
  bool fit_one_bucket(const std::vector<VariableGradient>& gradients) const;
  ValueRef add_pull(Graph& graph, const std::vector<VariableInfo>& variables, const std::string& name,
                    PullKind kind);
  void add_push(TrainingGraph& training, const std::vector<VariableGradient>& bucket, std::size_t sequence,
                bool votes);

  Runtime& runtime_;
  const Peers peers_;
  const std::string strategy_;
  const std::uint64_t seed_;
  const std::int64_t bucket_bytes_;
  const std::int64_t examples_;  // of this worker, in a step
  const bool pull_ahead_, fills_;
  const std::int64_t cache_rows_;  // 0: none
  const std::uint64_t cache_age_;  // but for BSP
  const bool rows_may_be_dense_;   // models of the zoo say which tables are sparse
  const bool alone_;               // one worker, for all of the job's time
  const bool homes_;               // several that can be homes
  const std::int64_t steps_in_flight_;
  const Optimizers optimizers_;
  ps::TableSet set_;
  std::map<std::string, int> dense_, sparse_;  // table numbers by variable
  std::vector<std::int64_t> rows_;             // of sparse tables, by number
  std::shared_ptr<CachedRows> cached_;         // null: none
  std::unique_ptr<HomeTables> home_;           // null: rows have no home but the servers
  bool created_ = false;
  std::uint64_t steps_ = 0;  // that have ended
};

}  // namespace braid::worker
