// How the workers of a job share what they learn: a rewrite of the training graph plus what must happen
// outside of steps (start, checkpoint, end). One file a strategy; `make_strategy` chooses by the job. The
// engine knows none of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/checkpoint.h"
#include "base/wait_context.h"
#include "engine/exec/runtime.h"
#include "worker/step/training_graph.h"

namespace braid {
class Program;
struct FeedSpec;
}  // namespace braid
namespace braid::proto {
class Job;
}
namespace braid::comm {
class Communicator;
class Rendezvous;
}  // namespace braid::comm
namespace braid::ps {
class BatchQueue;
class PsClient;
}  // namespace braid::ps

namespace braid::worker {

/// Who this process is among the workers, and what it talks through. Filled by worker/roles/bootstrap; where
/// a step is only compiled, to be looked at, it talks to nobody.
struct Peers {
  int rank = 0;
  int world = 1;
  std::shared_ptr<comm::Communicator> communicator;   // of strategies that has_communicator() names
  std::shared_ptr<ps::PsClient> servers;              // PS, PS_ALLREDUCE
  std::shared_ptr<ps::BatchQueue> queue = {};         // of jobs that takes_batches() names
  std::shared_ptr<comm::Rendezvous> rendezvous = {};  // where several workers of RING and NCCL meet
  std::string card = {};  // a GPU that a step is only planned for ("H100"); empty: the runtime's device
  bool leader() const { return rank == 0; }
};

/// Values of a graph that need no variables, by name, as they are for each of this worker's first `batches`.
using BatchValues = std::function<std::vector<std::vector<Tensor>>(
    const Graph& graph, const std::vector<std::string>& values, std::uint64_t batches)>;

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string_view name() const = 0;

  /// Before rewrite_training(), where the graph is not only looked at: whether the job goes on with what it
  /// has kept, and how long others may take to come that far.
  virtual void prepare(bool /*resume*/, const WaitContext& /*wait*/) {}
  /// Likewise: what this worker's first batches hold. Good until rewrite_training() returns.
  virtual void look_at_batches(const BatchValues& /*values*/) {}
  /// Equal parts that a batch goes through the strategy's graph in, each by itself, in any order; 0: it is
  /// cut as optimizer.accumulate_steps says, into parts that come one behind another.
  virtual std::int64_t micro_batches() const { return 0; }
  /// Decides where nodes of the differentiated graph run, before a batch is cut into parts. `columns`: what a
  /// step of this worker is fed with.
  virtual void place_training(TrainingGraph& /*training*/, const std::vector<FeedSpec>& /*columns*/) {}
  /// Adds what one step needs beside forward and backward. Called once, before variables exist.
  virtual void rewrite_training(TrainingGraph& training) = 0;
  /// The same for a forward graph that is run for evaluation.
  virtual void rewrite_inference(Graph&) {}

  /// The program of the graph that rewrite_training() has made, as it will run.
  virtual void take_program(const Program& /*step*/) {}
  /// What was decided about variables, for people, in lines; empty: nothing. `step`: the program of the graph
  /// that rewrite_training() has made, which knows sizes.
  virtual std::string describe(const Program& /*step*/) const { return {}; }
  /// The same as a JSON object; empty: nothing.
  virtual std::string describe_json(const Program& /*step*/) const { return {}; }
  /// The variable begins with this value, not with what its node says. True: this process holds a part of it,
  /// which start() fills; the local variable is left alone. REQUIRES: rewrite_training().
  virtual bool takes_initial_value(const std::string& /*variable*/, const Tensor& /*whole*/) { return false; }
  /// The shape that a variable, or a slot of one, has in the model: that of the local one, unless this
  /// process holds a part of it.
  virtual Shape whole_shape(const std::string& /*name*/, const Shape& local) const { return local; }

  /// What the model calls the variable, or slot, that the local store has by this name.
  virtual std::string model_name(const std::string& local) const { return local; }

  /// Steps of the graph will be run for their time, before start(): from now on what they exchange on these
  /// lanes is on trial, and changes nothing of the job.
  virtual std::vector<Lane> begin_trial(const WaitContext& /*wait*/) { return {}; }
  /// It is over. Throws nothing.
  virtual void end_trial() {}

  /// Whether the workers' steps meet in each collective, so that their programs must agree.
  virtual bool needs_one_plan() const { return false; }
  /// Whether programs may differ in what a rank holds, so that only variables as a whole and collectives
  /// agree.
  virtual bool ranks_differ() const { return false; }
  /// All workers compiled: refuses to go on when their plans differ. Throws: InvalidArgument naming the rank.
  virtual void agree_on_plan(std::uint64_t /*plan_hash*/, const WaitContext&) {}
  /// The store holds initial values, or those of `restored` when it is set, which contain `step` steps: makes
  /// all processes start from the leader's values and at the leader's step, which it returns. With `resume`
  /// and nothing restored, what other processes still hold of a run that lost its leader goes before that.
  virtual std::uint64_t start(const CheckpointInfo* restored, bool resume, std::uint64_t step,
                              const WaitContext&) = 0;
  /// In place of start(), in a world of an elastic job: all processes have the variables of rank `source`
  /// then, and its step, which it returns.
  virtual std::uint64_t take_over(int source, std::uint64_t step, const WaitContext&);
  /// Around every step, from its start to its result; `wait` is how long peers may keep it waiting.
  virtual void begin_step(std::uint64_t /*step*/, const WaitContext& /*wait*/) {}
  /// Throws: what peers did to the step, whose results are not to be used then.
  virtual void end_step(std::uint64_t /*step*/) {}
  /// The step failed here. Throws what peers did to it, when that is why; else tells them.
  virtual void fail_step(std::uint64_t /*step*/) {}
  /// All workers have come to a step boundary where the leader evaluates or saves: the others help it until
  /// it is done, and it tells them that it is. `wait`: of one request.
  virtual void meet_at_border(const WaitContext& /*wait*/) {}
  /// Brings the store's variables up to date with the last finished step, for evaluation.
  virtual void refresh_variables(const WaitContext&) {}
  /// Writes what only other processes hold (servers' tables) into `directory`, as a part of a checkpoint of
  /// the run with that id; called on the leader at a step boundary.
  virtual std::vector<ShardInfo> save_remote(const std::filesystem::path& /*directory*/,
                                             std::uint64_t /*step*/, const std::string& /*run*/,
                                             const WaitContext&) {
    return {};
  }
  /// Whether that variable or slot of the local store belongs into the worker's shard.
  virtual bool saves_local_variable(const std::string& /*name*/) const { return true; }
  /// This worker has run its last step. After it, evaluation still works on the leader.
  virtual void finish_steps(const WaitContext&) {}
  /// The very end, on every worker. `terminated`: by SIGTERM, and to be gone on with.
  virtual void shut_down(bool /*terminated*/, const WaitContext&) {}
  /// Ends waits of this process for others soon. Safe from any thread.
  virtual void abort() {}

  /// Whether a worker's gradients are multiplied by its share of the rows (BatchShare::weight), so that the
  /// workers' mean is the one over all rows.
  virtual bool weighs_gradients() const { return true; }
  /// Multiplies gradients before the update: 1 / workers where gradients are summed over them.
  virtual float gradient_scale() const { return 1.0F; }
};

std::unique_ptr<Strategy> make_strategy(const proto::Job& job, Runtime& runtime, const Peers& peers);

std::unique_ptr<Strategy> make_local_strategy(const proto::Job& job);
std::unique_ptr<Strategy> make_allreduce_strategy(const proto::Job& job, Runtime& runtime,
                                                  const Peers& peers);
std::unique_ptr<Strategy> make_hybrid_strategy(const proto::Job& job, Runtime& runtime, const Peers& peers);
std::unique_ptr<Strategy> make_pipeline_strategy(const proto::Job& job, Runtime& runtime, const Peers& peers);
std::unique_ptr<Strategy> make_tensor_strategy(const proto::Job& job, Runtime& runtime, const Peers& peers);
std::unique_ptr<Strategy> make_experts_strategy(const proto::Job& job, Runtime& runtime, const Peers& peers);
std::unique_ptr<Strategy> make_ps_strategy(const proto::Job& job, Runtime& runtime, const Peers& peers);
std::unique_ptr<Strategy> make_ps_allreduce_strategy(const proto::Job& job, Runtime& runtime,
                                                     const Peers& peers);

/// Registers the ops of all strategies. REQUIRES: called before graphs are made, by one thread; idempotent.
void register_strategy_ops();

}  // namespace braid::worker
