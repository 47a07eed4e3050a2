#include "worker/job/mesh.h"

#include <gmock/gmock.h>

#include "proto/job.pb.h"
#include "tests/support/message_of.h"

namespace braid::worker {
namespace {

using ::testing::ElementsAre;

proto::Job job_of(std::uint32_t data, std::uint32_t tensor) {
  proto::Job job;
  job.mutable_strategy()->set_kind(proto::Strategy::TENSOR);
  job.mutable_strategy()->mutable_mesh()->set_data(data);
  job.mutable_strategy()->mutable_mesh()->set_tensor(tensor);
  return job;
}

std::pair<int, int> sizes(std::uint32_t data, std::uint32_t tensor, int world) {
  const Mesh mesh = mesh_of(job_of(data, tensor), world);
  return {mesh.data, mesh.workers};
}

TEST(MeshTest, WhatIsAbsentFollowsFromTheNumberOfWorkers) {
  EXPECT_EQ(sizes(0, 0, 6), std::pair(1, 6));
  EXPECT_EQ(sizes(2, 0, 6), std::pair(2, 3));
  EXPECT_EQ(sizes(0, 2, 6), std::pair(3, 2));
  EXPECT_EQ(sizes(3, 2, 6), std::pair(3, 2));
}

TEST(MeshTest, OtherNumbersOfWorkersAreRefused) {
  const auto refused = [](std::uint32_t data, std::uint32_t tensor, int world) {
    return message_of([&] { mesh_of(job_of(data, tensor), world); });
  };
  EXPECT_EQ(refused(2, 0, 5), "strategy.mesh { data: 2 } is not of 5 workers, which there are");
  EXPECT_EQ(refused(0, 8, 4), "strategy.mesh { tensor: 8 } is not of 4 workers, which there are");
  EXPECT_EQ(refused(2, 2, 8), "strategy.mesh { data: 2 tensor: 2 } is not of 8 workers, which there are");
}

TEST(MeshTest, WorkersOfAGroupAreNeighbours) {
  const Mesh mesh{2, 3};
  EXPECT_EQ(mesh.group_of(4), 1);
  EXPECT_EQ(mesh.place_of(4), 1);
  EXPECT_THAT(mesh.group_ranks(4), ElementsAre(3, 4, 5));
  EXPECT_THAT(mesh.data_ranks(4), ElementsAre(1, 4));
}

TEST(MeshTest, ExpertsHaveGroupsOfTheirOwnField) {
  proto::Job job = job_of(2, 7);
  job.mutable_strategy()->set_kind(proto::Strategy::EXPERTS);
  EXPECT_EQ(mesh_of(job, 6).workers, 3) << "mesh.tensor is of TENSOR";
  job.mutable_strategy()->mutable_mesh()->set_experts(4);
  EXPECT_EQ(message_of([&] { mesh_of(job, 6); }),
            "strategy.mesh { data: 2 experts: 4 } is not of 6 workers, which there are");
}

TEST(MeshTest, StagesAreTheWorkersOfAGroup) {
  proto::Job job = job_of(0, 0);
  job.mutable_strategy()->set_kind(proto::Strategy::PIPELINE);
  EXPECT_EQ(mesh_of(job, 4).workers, 4);
  job.mutable_strategy()->mutable_mesh()->set_pipeline(2);
  EXPECT_EQ(mesh_of(job, 4).data, 2);
  EXPECT_EQ(message_of([&] { mesh_of(job, 5); }),
            "strategy.mesh { pipeline: 2 } is not of 5 workers, which there are");
}

TEST(MeshTest, OtherStrategiesHaveGroupsOfOne) {
  proto::Job job = job_of(1, 4);
  job.mutable_strategy()->set_kind(proto::Strategy::ALLREDUCE);
  EXPECT_EQ(mesh_of(job, 4).data, 4);
  EXPECT_EQ(mesh_of(job, 4).workers, 1);
}

}  // namespace
}  // namespace braid::worker
