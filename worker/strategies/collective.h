// What the strategies have in common whose workers meet in collectives on one communicator (ALLREDUCE,
// HYBRID, PIPELINE, PS_ALLREDUCE): one total order of collectives, the loss and the votes to stop, which ride
// in the first bucket of gradients, so that every worker reports the mean over the global batch and all stop
// after the same step; and what happens around steps. Thread rule: as Strategy.
#pragma once

#include <limits>
#include <vector>

#include "worker/strategies/strategy.h"

namespace braid::worker {

struct StepServices;

class CollectiveStrategy : public Strategy {
 public:
  CollectiveStrategy(const proto::Job& job, Runtime& runtime, const Peers& peers);

  bool needs_one_plan() const override { return peers_.world > 1; }
  void agree_on_plan(std::uint64_t plan_hash, const WaitContext& wait) override;
  std::uint64_t start(const CheckpointInfo* restored, bool resume, std::uint64_t step,
                      const WaitContext& wait) override;
  void take_program(const Program& step) override;
  std::uint64_t take_over(int source, std::uint64_t step, const WaitContext& wait) override;
  void begin_step(std::uint64_t step, const WaitContext& wait) override;
  void end_step(std::uint64_t step) override;
  void fail_step(std::uint64_t step) override;
  void finish_steps(const WaitContext& wait) override;
  void shut_down(bool terminated, const WaitContext& wait) override;
  void abort() override;
  float gradient_scale() const override { return 1.0F / static_cast<float>(peers_.world); }

 protected:
  /// Behind the collective before it, or where order_by_readiness() puts it.
  NodeId add_collective(Graph& graph, Node node, const char* op);
  /// Collectives that are added from now on, and `others`, which are in the graph already, get their order
  /// from order_by_readiness().
  void order_later(std::vector<NodeId> others);
  /// Puts those in the order in which what they read is made, as far as the graph alone says it: the same on
  /// all ranks. Nodes from `first_added` on are as if made together with the last of their inputs.
  void order_by_readiness(Graph& graph, NodeId first_added = std::numeric_limits<NodeId>::max()) const;
  /// Writes of variables come behind all collectives, as far as these do not need them: a step that fails for
  /// a peer has changed nothing, and ranks are a step apart at most.
  void write_behind_collectives(Graph& graph) const;
  /// Sums the bucket's dense gradients over ranks; with the loss and the votes where it is the first. Result:
  /// the dense gradients, reduced.
  std::vector<VariableGradient> reduce_bucket(TrainingGraph& training,
                                              const std::vector<VariableGradient>& dense, std::size_t bucket);
  /// All of them, in buckets as backward makes them: dense ones are summed, rows gathered. Where there are
  /// none the loss and the votes go alone.
  std::vector<VariableGradient> reduce_in_buckets(TrainingGraph& training,
                                                  const std::vector<VariableGradient>& gradients);
  /// The rows of all ranks, one behind the other; nothing of a table's size is sent.
  VariableGradient gather_rows(TrainingGraph& training, VariableGradient gradient);
  /// This process's wish to stop, to be added up over ranks.
  virtual ValueRef stop_vote(Graph& graph) const;
  /// Of strategies whose workers each read and write their part of a checkpoint: throws InvalidArgument
  /// naming the rank unless all have found the same one.
  void agree_on_checkpoint(const CheckpointInfo* restored, const WaitContext& wait) const;
  /// Whether the leader's value replaces this variable's of other ranks before the first step.
  virtual bool is_shared(const std::string& /*variable*/) const { return true; }

  Runtime& runtime_;
  Peers peers_;
  const std::int64_t bucket_bytes_;
  const DType wire_;              // as what dense gradients travel
  const bool on_device_;          // the communicator takes the memory of GPUs
  StepServices* const services_;  // null in tests without steps

 private:
  /// The same of gradients that travel as `wire_`.
  void reduce_as_halves(Graph& graph, std::vector<VariableGradient>& gradients, std::size_t bucket);
  ValueRef mean_over_ranks(Graph& graph, ValueRef sum) const;

  std::vector<std::string> program_variables_;  // by name
  NodeId previous_ = kNoNode;                   // the collective before
  bool orders_later_ = false;
  std::vector<NodeId> to_order_;
};

}  // namespace braid::worker
