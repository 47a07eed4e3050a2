// Strategies TENSOR, EXPERTS and PIPELINE: how their workers are a mesh of groups, and what a job of them may
// not have. Worker r is number r % workers of group r / workers. Thread rule: values and pure functions.
#pragma once

#include <string>
#include <vector>

namespace braid::proto {
class Job;
}

namespace braid::worker {

struct Mesh {
  int data = 1;     // groups, which share the rows of a step
  int workers = 1;  // of a group, which share its layers; of EXPERTS: its experts; of PIPELINE: its stages

  int group_of(int rank) const { return rank / workers; }
  int place_of(int rank) const { return rank % workers; }
  /// The ranks of this one's group, and those of other groups that have the same slices or stage; in order.
  std::vector<int> group_ranks(int rank) const;
  std::vector<int> data_ranks(int rank) const;
};

/// Of a job of TENSOR, EXPERTS or PIPELINE with so many workers; of all other jobs one worker a group.
/// Throws: InvalidArgument where strategy.mesh is of another number of workers.
Mesh mesh_of(const proto::Job& job, int world);

/// What of the job does not go with TENSOR or EXPERTS, and why; empty: nothing, or another strategy.
std::string objection_to_mesh(const proto::Job& job);

}  // namespace braid::worker
