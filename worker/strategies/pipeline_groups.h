// Groups of pipelines (strategy.mesh of PIPELINE): each group has all stages and rows of its own, and the
// gradients of a stage are summed over the workers that have it. All ranks of the job have each exchange at
// one place of their one order, so stages with fewer gradients exchange nothing of use at some. Thread rule:
// one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/step/training_graph.h"
#include "worker/strategies/pipeline_rewrite.h"

namespace braid::worker {

/// What the stages exchange over groups, which follows from the whole model: the same on all ranks.
struct GroupExchanges {
  std::vector<std::size_t> widths;    // by bucket: dense gradients, of the stage with the most
  std::size_t tables = 0;             // gradients of rows, of the stage with the most
  std::vector<std::int64_t> bytes;    // by stage: dense gradients of a step
  std::vector<std::int64_t> buckets;  // by stage
};

/// `stages`: of each gradient of the model.
GroupExchanges plan_group_exchanges(const std::vector<VariableGradient>& gradients,
                                    const std::vector<int>& stages, int count, std::int64_t bucket_bytes);

/// How a worker's values travel.
struct GroupWire {
  std::vector<std::int64_t> members;  // ranks that have its stage, in order
  DType dtype = DType::Float32;
  bool gathers = false;  // and are added up here: where there is no sum of a part of the ranks
  AddExchange add_exchange;
};

/// Makes the gradients of `training`, which are of this worker's stage, sums over the groups; rows of tables
/// lie one group's behind the other's. Throws: InvalidArgument for a table that columns of varying length
/// look into.
void sum_over_groups(TrainingGraph& training, const GroupExchanges& exchanges, std::int64_t bucket_bytes,
                     const GroupWire& wire);

}  // namespace braid::worker
