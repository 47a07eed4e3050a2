// Runs a part of a graph for one record at a time, beside the step: each thread has its own programs, one for
// each signature of feeds. Text is made between programs (text_nodes.h).
//
// On the host each thread has its own runtime, whose kernels run on the thread that calls; variables that the
// part reads are copied from the step's store when it runs for the first time. On the step's device each
// thread has streams of its own; variables are the step's, and what the part computes stays on the device
// unless text is made of it.
//
// Thread rule: run() from several threads at once, each with its own number.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/exec/program_cache.h"
#include "engine/exec/runtime.h"
#include "engine/ir/graph.h"
#include "engine/staging/block_pool.h"
#include "engine/staging/stage_options.h"
#include "engine/staging/text_nodes.h"

namespace braid {

struct SubgraphSettings {
  std::vector<std::string> variables = {};  // that the part uses
  std::uint64_t seed = 0;                   // of the job: of random ops and initial values
  int intra_op_threads = 1;                 // of what runs on the host without a device
  /// On the step's device: how the names of the part's streams begin ("input" of "input.0/compute0", where 0
  /// is the thread), and their priority. Empty: on the host.
  std::string device_streams = {};
  int priority = 0;
};

/// Of a stage's parts: as many threads as its pool gives a record; streams where its options name one and the
/// step has a device, called by the stage's name, with the priority of that id.
/// REQUIRES: check_stage_options().
SubgraphSettings stage_settings(const StageOptions& stage, const StageSession& session, Runtime& step);

/// Names, types and shapes of `values`, given those of the feeds; nothing runs.
/// Throws: InvalidArgument (compile()).
std::vector<FeedSpec> part_signature(const Graph& graph, const std::vector<std::string>& values,
                                     const std::vector<FeedSpec>& feeds);

class SubgraphRunner {
 public:
  using Values = std::vector<std::pair<std::string, Tensor>>;

  /// `graph` and the step's runtime outlive it. All runs feed the same values.
  SubgraphRunner(const Graph& graph, const std::vector<std::string>& fetches, SubgraphSettings settings,
                 Runtime& step);

  /// The fetches for these feeds, which may be on the device; a fetch that is fed is handed through. Random
  /// ops draw as those of step `step`. Throws: what compile() and steps throw.
  std::vector<Tensor> run(int thread, std::uint64_t step, const Values& feeds, const WaitContext& wait);

 private:
  struct Programs {
    std::unique_ptr<ProgramCache> cache;
    std::vector<ValueRef> feeds;  // that they need
  };
  struct Lane {
    std::unique_ptr<Runtime> own;                        // null on the device, where it is the step's
    std::map<std::vector<ValueRef>, Programs> programs;  // by what they compute
  };
  bool on_device() const { return !settings_.device_streams.empty(); }
  Runtime& runtime(const Lane& lane) const { return lane.own ? *lane.own : step_; }
  Lane& lane(int thread);
  const TextNodes& text(const TextNodes::Known& given);
  /// Adds `wanted` to `known`, by a program; on the device, if that is where the part runs and they `stay`.
  void compute(int thread, std::uint64_t step, const std::vector<ValueRef>& wanted, bool stay,
               TextNodes::Known& known, const WaitContext& wait);
  Programs make_programs(int thread, const Lane& lane, const std::vector<ValueRef>& wanted,
                         const TextNodes::Known& known) const;
  /// For these feeds; variables that come into being with it get their values.
  std::shared_ptr<Instance> instance(const Lane& lane, ProgramCache& cache,
                                     const std::vector<FeedSpec>& feeds);

  // Set once.
  const Graph& graph_;
  std::vector<ValueRef> fetches_;
  const SubgraphSettings settings_;
  Runtime& step_;
  const std::shared_ptr<BlockPool> device_blocks_;  // null on the host

  std::mutex mu_;
  std::map<int, std::unique_ptr<Lane>> lanes_;  // guarded by mu_
  std::unique_ptr<const TextNodes> text_;       // guarded by mu_; made by the first run
};

}  // namespace braid
