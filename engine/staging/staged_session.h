// A graph with stages, run: each stage's part of the graph ahead of the step on the stage's threads, the rest
// as the step. Sources give the records of placeholders; each belongs to one stage. Batches carry the cursor
// of the record they come from. A runtime that traces draws each stage's threads as tracks. What the stages
// of a session may use (pools, streams) is in `stages`; nothing is process-wide.
//
// Thread rule: run() from one thread; everything else as for Stage.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "engine/exec/program_cache.h"
#include "engine/exec/runtime.h"
#include "engine/staging/block_pool.h"
#include "engine/staging/graph_stage.h"
#include "engine/staging/stage.h"
#include "engine/staging/subgraph_runner.h"

namespace braid {

/// Records for placeholders, e.g. of a reader. `read` is called by one thread at a time, in the order of
/// tickets, and throws OutOfRange at the end.
struct RecordSource {
  std::vector<std::string> placeholders;
  std::function<Batch(std::uint64_t ticket)> read;  // tensors in the order of `placeholders`
};

struct StagedSessionOptions {
  CompileOptions compile;  // of the step
  StageSession stages = {};
  std::uint64_t seed = 0;
  BlockPool::Allocate allocate_block = {};  // of batches; none: host memory
};

class StagedSession {
 public:
  /// Throws: InvalidArgument (cut_graph, check_stage_options; a source without placeholders or function; a
  /// placeholder with two sources, or of a source that no stage reads, or that the step or a second stage
  /// reads; one that a stage needs and nobody feeds).
  StagedSession(Graph graph, std::vector<GraphStage> stages, const std::vector<std::string>& fetches,
                std::vector<std::string> targets, std::vector<RecordSource> sources,
                StagedSessionOptions options, Runtime& runtime);
  ~StagedSession();
  StagedSession(const StagedSession&) = delete;
  StagedSession& operator=(const StagedSession&) = delete;

  /// Starts all stages at this ticket. A PrefetchHook does it, and ends them.
  void start(std::uint64_t first_ticket = 0);
  /// Cancels all stages: everybody who waits returns with Cancelled.
  void cancel();
  /// cancel(), and waits until no thread of a stage is at work: then no source is read any more.
  void stop();
  /// Begins no new record; those that are begun go through all stages, then run() throws OutOfRange.
  void close();

  /// One step: takes a batch of each stage that feeds it. `feeds` are for placeholders of the step itself,
  /// the same ones in each step. Fetches may be text, made of what the step computes. Throws: OutOfRange at
  /// the end of the input, InvalidArgument for feeds that are not those of the first step, what Stage::take
  /// and Instance throw.
  StepResult run(const StepParams& params, const SubgraphRunner::Values& feeds, const WaitContext& wait);

  /// For those who run the step themselves: the next batch of a stage, its tensors in the order of outputs.
  /// They may be on the runtime's device (Tensor::domain()).
  Stage& stage(std::size_t index);
  const StagedGraph& cut() const;
  /// The cursor of the last record that run() has consumed; empty before.
  const std::string& cursor() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Starts the stages of a session and ends them with its own life, or when a stop is requested.
class PrefetchHook {
 public:
  explicit PrefetchHook(StagedSession& session, std::uint64_t first_ticket = 0, std::stop_token stop = {});
  ~PrefetchHook();
  PrefetchHook(const PrefetchHook&) = delete;
  PrefetchHook& operator=(const PrefetchHook&) = delete;

 private:
  StagedSession& session_;
  std::stop_callback<std::function<void()>> on_stop_;
};

}  // namespace braid
