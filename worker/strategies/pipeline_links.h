// What the stages of a pipeline exchange in a step: which values of a cut training graph, of which part of
// the batch, go from which stage to which, and in which order. The same on all ranks. A value that several
// nodes of a stage read goes there once, straight from the stage that makes it. Values that are known at
// compile time, or read for their shape alone, do not travel. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "comm/mailbox.h"
#include "worker/strategies/pipeline_nodes.h"
#include "worker/strategies/pipeline_schedule.h"

namespace braid::worker {

/// One message of a step.
struct PipelineTransfer {
  StageLink link;
  std::optional<std::int64_t> part;  // of the batch; nothing: of weights, once a step
  std::vector<ValueRef> values;      // in one order on both sides
  int slot = -1;                     // of PipelineLinks::slots
};

struct PipelineLinks {
  std::vector<int> stage;                         // by node; -1: free, or not needed
  std::vector<std::optional<PipelineTask>> task;  // by node; nothing: of no part
  std::vector<PipelineTransfer> transfers;        // in the order in which they are sent
  std::vector<std::int64_t>
      kept_bytes;     // by stage, of one part: what its backward nodes read of forward ones
  double bubble = 0;  // of a step in model time
  /// Of a group's mailbox, between its stages: messages from one stage to another take turns in two.
  std::vector<comm::MailSlot> slots;
};

struct PipelinePlan {
  PipelineOrder order = PipelineOrder::OneForwardOneBackward;
  std::int64_t parts = 1;
  std::vector<StageTimes> times;  // by stage
};

/// `training` was cut into parts (TrainingGraph::part_of) and its nodes have stages (stage_of()). Throws:
/// InvalidArgument naming the node: a size that depends on the data, a handle or an order of effects (control
/// edge) that would have to go to another stage.
PipelineLinks find_links(const TrainingGraph& training, const PipelineNodes& nodes, const PipelinePlan& plan);

/// Whether what a node reads from another stage does not travel.
bool stays_home(const PipelineNodes& nodes, const Node& reader, std::size_t input);

}  // namespace braid::worker
