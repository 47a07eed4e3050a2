// Runs a part of a graph for one record at a time, beside the step: each thread has its own runtime, whose
// kernels run on the thread that calls, and its own programs, one for each signature of feeds. Text is made
// between programs (text_nodes.h). Variables that the part reads are copied from the step's store when a
// thread runs for the first time. Thread rule: run() from several threads at once, each with its own number.
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
#include "engine/staging/text_nodes.h"

namespace braid {

struct SubgraphSettings {
  std::vector<std::string> variables = {};  // that the part uses
  std::uint64_t seed = 0;                   // of the job: of random ops and initial values
  int intra_op_threads = 1;
};

/// Names, types and shapes of `values`, given those of the feeds; nothing runs.
/// Throws: InvalidArgument (compile()).
std::vector<FeedSpec> part_signature(const Graph& graph, const std::vector<std::string>& values,
                                     const std::vector<FeedSpec>& feeds);

class SubgraphRunner {
 public:
  using Values = std::vector<std::pair<std::string, Tensor>>;

  /// `graph` and `store` outlive it. All runs feed the same values.
  SubgraphRunner(const Graph& graph, const std::vector<std::string>& fetches, SubgraphSettings settings,
                 const VariableStore& store);

  /// The fetches for these feeds; a fetch that is fed is handed through. Random ops draw as those of step
  /// `step`. Throws: what compile() and steps throw.
  std::vector<Tensor> run(int thread, std::uint64_t step, const Values& feeds, const WaitContext& wait);

 private:
  struct Programs {
    std::unique_ptr<ProgramCache> cache;
    std::vector<ValueRef> feeds;  // that they need
  };
  struct Lane {
    explicit Lane(int intra_op_threads) : runtime({.intra_op_threads = intra_op_threads}) {}
    Runtime runtime;
    std::map<std::vector<ValueRef>, Programs> programs;  // by what they compute
  };
  Lane& lane(int thread);
  const TextNodes& text(const TextNodes::Known& given);
  /// Adds `wanted` to `known`, by a program.
  void compute(int thread, std::uint64_t step, const std::vector<ValueRef>& wanted, TextNodes::Known& known,
               const WaitContext& wait);
  void load_variables(Runtime& runtime) const;

  // Set once.
  const Graph& graph_;
  std::vector<ValueRef> fetches_;
  const SubgraphSettings settings_;
  const VariableStore& store_;

  std::mutex mu_;
  std::map<int, std::unique_ptr<Lane>> lanes_;  // guarded by mu_
  std::unique_ptr<const TextNodes> text_;       // guarded by mu_; made by the first run
};

}  // namespace braid
