// Runs parts of a graph again and again over the same variables, as a program that builds its graph step by
// step asks for them: any values, any nodes for their effect, fed with any values. The graph may grow between
// runs; a node that was there stays as it was. Stages that the graph has marked
// (engine/staging/stage_marks.h) begin when a run first takes from them, and all runs take from the same
// ones.
//
// Variables begin with what their nodes say (_init_kind), else they need an assignment first: a run that
// would read one without a value is refused by name.
//
// Thread rule: one run at a time, any thread; close() and the destructor end threads of stages and so must
// not hold what a source's function waits for.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/staging/staged_session.h"
#include "worker/session/session_peers.h"

namespace braid::worker {

struct GraphSessionOptions {
  CompileOptions compile = {};
  StageSession stages = {};
  std::uint64_t seed = 1;
  int intra_op_threads = 0;                             // 0: one for each usable core
  std::chrono::milliseconds timeout{3'600'000};         // of a run
  std::shared_ptr<const SessionPeers> peers = nullptr;  // that collectives of the graph meet
};

struct GraphRun {
  std::vector<std::string> fetches;  // values
  std::vector<std::string> targets;  // nodes
  SubgraphRunner::Values feeds = {};
  /// Called every 100 ms while the run waits for a stage; what it throws ends the wait, and nothing is lost.
  std::function<void()> poll = {};
};

class GraphSession {
 public:
  explicit GraphSession(GraphSessionOptions options);
  ~GraphSession();
  GraphSession(const GraphSession&) = delete;
  GraphSession& operator=(const GraphSession&) = delete;

  /// Placeholders that are not fed by runs but come with records: read by the stage above which they stand,
  /// else by the run that needs them. REQUIRES: no stage has begun. `read` as in RecordSource.
  void add_source(RecordSource source);

  /// The fetches' values, on the host. Throws: InvalidArgument (an unknown name, a placeholder that is not
  /// fed, a variable without a value, and what compile() throws), OutOfRange (the end of a source), and what
  /// a step throws.
  std::vector<Tensor> run(const Graph& graph, const GraphRun& asked);

  /// Begins the stages of the graph, if they have not begun.
  void start_stages(const Graph& graph);
  /// Ends them: runs that take from them throw Cancelled, until start_stages(). When it returns no source is
  /// being read.
  void close();

  std::vector<std::string> variables() const;  // that have values, sorted
  /// Nothing when it has none.
  std::optional<Tensor> value(const std::string& variable) const;
  /// Sets a variable of the graph. Throws: InvalidArgument (no such variable, another type or shape).
  void assign(const Graph& graph, const std::string& variable, const Tensor& value);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid::worker
