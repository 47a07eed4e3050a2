// On which stage of a pipeline each node of a model stands: a pure function of the job, the differentiated
// graph and the rows of a micro-batch, so that all workers find the same.
//
// The patterns of the job decide, else device scopes of the graph, else the cost model: forward nodes are put
// in a line, inputs first, and the line is cut where the longest stage, with what it sends, is shortest. A
// node whose stage nobody says stands where the last of its inputs does, what is computed of weights alone
// with the first that reads it. Backward nodes stand with their forward nodes. What follows from columns and
// constants alone has no stage: each makes its own.
//
// A variable lives on the stage of the nodes that take its handle (reads, gathers, updates), which are on
// one. Its value goes to other stages like that of any node. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/program/options.h"
#include "worker/step/training_graph.h"
#include "worker/strategies/pipeline_schedule.h"

namespace braid::proto {
class Pipeline;
}

namespace braid::worker {

/// What the cost model says of a stage, for a micro-batch where nothing else is said.
struct StageEstimate {
  std::int64_t nodes = 0;
  StageTimes times{0, 0};  // microseconds
  std::int64_t variable_bytes = 0;
};

struct PipelineCut {
  std::vector<StageEstimate> stages;
  bool chosen = false;  // by the cost model
};

/// Writes each node's stage into its device. `columns`: of a micro-batch. Throws: InvalidArgument naming what
/// it is about: a pattern that is none or fits nothing, more or fewer stages than workers, one without nodes,
/// a node that reads one of a later stage, a variable whose handle is used on two, a model that cannot be cut
/// into so many.
PipelineCut cut_pipeline(TrainingGraph& training, const proto::Pipeline& pipeline,
                         const std::vector<FeedSpec>& columns, int stages, Domain domain);

}  // namespace braid::worker
