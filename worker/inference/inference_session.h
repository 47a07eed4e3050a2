// Requests over stream groups: N groups share one copy of a graph's constants and variables; each has
// streams, memory for a step and a launch thread of its own, and runs one request at a time. A request takes
// the group that is free first (stream_groups.h), so clients on several threads run beside each other; the
// results are those of a single group, bit by bit.
//
// A program is compiled for each signature of feeds (types and shapes) and bound for each group at its first
// use there; the ones used last are kept. Thread rule: run() and stats() from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/exec/runtime.h"
#include "worker/inference/launch_pool.h"
#include "worker/inference/stream_groups.h"
#include "worker/job/settings.h"

namespace braid::worker {

struct InferenceOptions {
  int groups = 1;
  std::size_t queue_capacity = 1024;  // requests that wait for a group
  /// Streams inside a group, batching of siblings. One step is in flight whatever it says, and AUTO on one
  /// stream is NONE.
  CompileOptions compile = {.streams = {}, .batch_siblings = BatchSiblings::WithinScopes};
  bool measure_streams = true;    // policy AUTO over several streams is decided by timing the candidates
  InstanceOptions instance = {};  // merge_copies and priorities; the rest is the session's
  /// Pools: group i runs on pool i mod P, or on the client's thread where there are no pools. Private: each
  /// group has `launch_threads`. Shared: all groups have them.
  LaunchThreads launch = LaunchThreads::Pools;
  int launch_threads = 1;
  std::vector<GroupSettings::Pool> pools = {};
  /// Bytes that steps' temporaries may take, of all groups together, or an equal part for each; 0: no limit.
  std::uint64_t memory_limit = 0;
  bool share_memory_limit = true;
  std::uint64_t seed = 0;  // of variables that have no value yet, and of random ops
  /// What variables that the runtime's store does not have begin with, e.g. those of a checkpoint. Null: the
  /// session is refused when the outputs need such variables, unless it is `untrained`: then they begin as
  /// their nodes say.
  std::function<Tensor(const Graph&, const VariableInfo&)> first_value = {};
  bool untrained = false;
};

struct InferenceRequest {
  std::vector<Tensor> feeds;  // in the order of the session's inputs
  /// The launch pool that runs it, instead of its group's.
  std::optional<int> pool = {};
};

/// Placeholders that the outputs need and that are no inputs, "'a', 'b'"; empty: none. Throws:
/// InvalidArgument for names that are no values, and inputs given twice.
std::string missing_inputs(const Graph& graph, const std::vector<std::string>& inputs,
                           const std::vector<std::string>& outputs);

class InferenceSession {
 public:
  /// `inputs` and `outputs` are value names. Variables that the runtime's store has keep their values; others
  /// begin as `options` say. The runtime outlives the session. Throws: InvalidArgument for variables without
  /// a value, names that are no values, inputs given twice, outputs that need a placeholder which is no
  /// input, or that write variables, which groups share; for options out of range.
  InferenceSession(Graph graph, std::vector<std::string> inputs, std::vector<std::string> outputs,
                   const InferenceOptions& options, Runtime& runtime);
  ~InferenceSession();
  InferenceSession(const InferenceSession&) = delete;

  /// The outputs. `wait` bounds all of it, the time in the line too. Throws: Unavailable when too many wait;
  /// what StreamGroups::acquire(), compile() and Instance::run() throw; OutOfMemory beyond the memory limit.
  std::vector<Tensor> run(InferenceRequest request, const WaitContext& wait);
  /// Runs a request on every group until nothing is left to prepare, so that later ones are as fast as they
  /// get. REQUIRES: no other request is under way.
  void warm_up(const InferenceRequest& request, const WaitContext& wait);

  const InferenceOptions& options() const { return options_; }
  std::vector<StreamGroups::Stats> stats() const { return groups_.stats(); }
  /// Requests that each launch pool has run.
  std::vector<std::uint64_t> pool_runs() const;
  /// The one that was used last; null before the first request.
  std::shared_ptr<const Program> program() const;

 private:
  struct Entry;
  struct Bound;
  struct Group;

  std::shared_ptr<Entry> program_for(const std::vector<Tensor>& feeds);
  std::shared_ptr<Entry> compile_for(const std::vector<FeedSpec>& feeds, const std::vector<Tensor>& values);
  Instance& instance_of(Group& group, int index, const std::shared_ptr<Entry>& entry);
  void make_room(Group& group, int index, std::uint64_t bytes);
  void check_variables() const;
  void initialize_variables(const Program& program);
  std::vector<Tensor> run_on(int group, const InferenceRequest& request, const WaitContext& wait);
  LaunchPool* pool_of(int group, const std::optional<int>& asked);

  const Graph graph_;
  const std::vector<std::string> inputs_, outputs_;
  const InferenceOptions options_;
  Runtime& runtime_;
  std::vector<std::unique_ptr<LaunchPool>> pools_;
  StreamGroups groups_;
  std::vector<std::unique_ptr<Group>> bound_;  // by group; used by who has its lease
  std::atomic<std::uint64_t> requests_{0};
  mutable std::mutex mu_;
  std::list<std::shared_ptr<Entry>> programs_;   // guarded by mu_; the one used last first
  std::mutex prepare_mu_;                        // compiling and binding, one at a time
  std::set<std::string> initialized_;            // guarded by prepare_mu_
  std::shared_ptr<std::byte[]> device_scratch_;  // null without a device
  std::uint64_t bound_bytes_ = 0;                // guarded by prepare_mu_; of all groups
};

}  // namespace braid::worker
