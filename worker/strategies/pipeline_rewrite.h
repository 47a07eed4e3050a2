// One stage's graph out of the training graph of all, whose batch was cut into parts: nodes of other stages
// go, what they make or read becomes braid.Recv and braid.Send, and control edges put the stage's passes into
// the schedule's order. Thread rule: one thread.
#pragma once

#include <functional>

#include "worker/step/training_graph.h"
#include "worker/strategies/pipeline_links.h"

namespace braid::worker {

/// Adds a node that exchanges, behind the one before it.
using AddExchange = std::function<NodeId(Node node, const char* op)>;

/// Keeps what `stage` of the pipeline whose first stage is rank `first` computes: gradients of its variables,
/// targets of its own, columns that it reads. The loss is valid on the stage that makes it alone, and invalid
/// on others.
void keep_stage(TrainingGraph& training, const PipelineNodes& nodes, const PipelineLinks& links,
                const PipelinePlan& plan, int stage, int first, const AddExchange& add_exchange);

}  // namespace braid::worker
