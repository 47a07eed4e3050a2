// The step of a graph with stages: what is left of the graph below them, run with the values that their
// batches bring and its user feeds. Text that these decide is made before the program of the step, text that
// the step decides after it. Takes no batches (staged_session.h does). Thread rule: one thread.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/wait_context.h"
#include "engine/exec/program_cache.h"
#include "engine/exec/runtime.h"
#include "engine/ir/graph.h"
#include "engine/staging/subgraph_runner.h"
#include "engine/staging/text_nodes.h"

namespace braid {

class StagedStep {
 public:
  /// `records`: placeholders that come with records. `graph` and `runtime` outlive it. Throws:
  /// InvalidArgument (a fetch that the graph does not have).
  StagedStep(const Graph& graph, const std::vector<std::string>& fetches, std::vector<std::string> targets,
             std::set<std::string> records, CompileOptions compile, Runtime& runtime);

  /// The programs are made for the values that the first step is fed. Throws: InvalidArgument, where these
  /// are others, or come with records.
  void check_fed(const SubgraphRunner::Values& feeds);

  /// `known`: outputs of the stages, and values that are fed, for which check_fed() was called. Throws: what
  /// Instance throws; InvalidArgument (text that the step makes of what it computes is fetched).
  StepResult run(const StepParams& params, TextNodes::Known known, const WaitContext& wait);

 private:
  // Set once.
  const Graph& graph_;
  const std::vector<std::string> targets_;
  const std::set<std::string> records_;
  const CompileOptions compile_;
  Runtime& runtime_;
  std::vector<ValueRef> fetches_;

  std::optional<std::set<ValueRef>> fed_;  // by its user in the first step, and so in each
  std::unique_ptr<const TextNodes> text_;  // made by the first step, as the programs
  std::vector<ValueRef> computed_;         // what the programs fetch
  std::vector<ValueRef> program_feeds_;
  std::unique_ptr<ProgramCache> programs_;
};

}  // namespace braid
