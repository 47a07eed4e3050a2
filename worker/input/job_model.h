// The model of a job, made for the columns of its data: one of Braid's by its name, or a graph of another
// program (worker/model). Thread rule: pure, but for the files of such a graph.
#pragma once

#include <memory>

#include "engine/input/schema/table.h"
#include "engine/input/stream/block_source.h"
#include "models/model.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// The job's model for that data. `workers`: that share its batches in training. Throws: as build_model().
ModelGraph job_model(const proto::Job& job, const Table& table, int workers = 1);
/// Throws: InvalidArgument, where the model predicts probabilities and a label among the rows is outside of
/// [0, 1].
void check_labels(const proto::Job& job, const ModelGraph& model, const Table& table);
/// The same of rows that are streamed, when they are read. `source` may be null.
std::shared_ptr<BlockSource> with_checked_labels(const proto::Job& job, const ModelGraph& model,
                                                 std::shared_ptr<BlockSource> source);

}  // namespace braid::worker
