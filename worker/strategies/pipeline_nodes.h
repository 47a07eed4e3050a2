// What the pipeline strategy knows of the nodes of a training graph before it cuts it: which ones a step
// needs, which of them every stage can make for itself, which belong to the backward pass, and on which stage
// they stand. That is the task of the node's device, "/job:worker/task:1", as graphs write it. Thread rule:
// values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/program/options.h"
#include "worker/step/training_graph.h"

namespace braid::worker {

struct PipelineNodes {
  Graph inferred;             // the graph with the shapes that these columns give it
  std::vector<NodeId> order;  // what a step needs, inputs first
  // By node:
  std::vector<char> needed;
  std::vector<char> free;        // follows from constants and columns alone: each stage has its own
  std::vector<char> backward;    // a gradient, or made of one
  std::vector<char> of_weights;  // follows from constants and variables alone

  bool is(const std::vector<char>& what, NodeId id) const { return what[static_cast<std::size_t>(id)] != 0; }
};

/// What a step of the first worker is fed with.
std::vector<FeedSpec> fed_columns(const TrainingGraph& training);
/// Of a value with a static shape; 0 of others.
std::int64_t value_bytes(const OutputInfo& info);

/// Throws: as infer_graph().
PipelineNodes pipeline_nodes(const TrainingGraph& training, const std::vector<FeedSpec>& columns);

/// Nothing where the device names no task of the job worker. Throws: InvalidArgument for what is no device.
std::optional<int> stage_of(const Node& node);
/// Keeps what the device says beside job and task. Nothing: no stage.
void set_stage(Node& node, std::optional<int> stage);

}  // namespace braid::worker
