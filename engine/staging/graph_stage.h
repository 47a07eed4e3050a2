// Stages in a graph: which values a stage hands over (its cut), which values are fed into the part above it,
// and what that part needs of others. Owns no thread: staged_session.h runs stages. Thread rule: pure
// functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/staging/stage_options.h"

namespace braid {

struct GraphStage {
  StageOptions options;
  std::vector<ValueRef> outputs;                     // what it hands over
  std::vector<std::pair<ValueRef, ValueRef>> feeds;  // (placeholder, value): evaluated for each record
  /// Other ways to make the outputs, each with a thread of its own into the same buffer: values that arrive
  /// in place of `outputs`.
  std::vector<std::vector<ValueRef>> joined = {};
};

/// What a part of a graph takes from outside of it, when it computes some values.
struct GraphPart {
  std::vector<NodeId> nodes;           // that it may run, by id
  std::vector<ValueRef> placeholders;  // that somebody must feed, by id
  std::vector<ValueRef> taken;         // values that stages hand over, sorted
};

/// A node by its own name or that of one of its values. Throws: InvalidArgument when there is none.
NodeId node_named(const Graph& graph, const std::string& name);

/// Everything above `roots` and control inputs of that, up to `given` values.
GraphPart part_above(const Graph& graph, const std::vector<ValueRef>& roots,
                     const std::vector<NodeId>& targets, const std::vector<ValueRef>& given);

/// Adds the other outputs of the values' nodes: a program runs a node unless all its outputs are fed.
void add_siblings(const Graph& graph, std::vector<ValueRef>& values);

struct StagePart {
  GraphPart feeding;                   // of the values in GraphStage::feeds; empty without
  GraphPart body;                      // of the outputs
  std::vector<GraphPart> joined;       // of the outputs of joined producers
  std::vector<int> upstream;           // stages whose outputs they take, sorted
  std::vector<std::string> variables;  // that they read
};

struct StagedGraph {
  std::vector<GraphStage> stages;
  std::vector<StagePart> parts;  // of each stage
  std::vector<int> order;        // upstream stages first
  GraphPart step;                // of the fetches and targets
  std::vector<int> step_stages;  // that the step takes from, sorted
};

/// Outputs of a stage are completed by add_siblings().
/// Throws: InvalidArgument naming stage and nodes: unknown values, two stages of one name, a value in
/// two stages, a feed that is given twice, of another type, or for nothing that the stage needs, stages that
/// need each other, one stage whose records two would take, a variable that the step or another stage writes
/// and a stage reads, a variable that a stage of several threads writes.
StagedGraph cut_graph(const Graph& graph, std::vector<GraphStage> stages,
                      const std::vector<std::string>& fetches, const std::vector<std::string>& targets);

}  // namespace braid
