// Rank variables: a family is taken whole, and each launcher's traps are known.
#include "launch/rank_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/expect_refused.h"

namespace braid::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(RankVariablesTest, OpenMpiGivesRanksAndLocalRanks) {
  const auto info = read_open_mpi({{"OMPI_COMM_WORLD_RANK", "5"},
                                   {"OMPI_COMM_WORLD_SIZE", "8"},
                                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  ASSERT_TRUE(info);
  EXPECT_EQ(info->rank, 5);
  EXPECT_EQ(info->size, 8);
  EXPECT_EQ(info->local_rank, 1);
  EXPECT_EQ(info->local_size, 4);
  EXPECT_EQ(info->leader_address, "");
  EXPECT_EQ(info->source, "Open MPI: OMPI_COMM_WORLD_RANK=5 of 8");
}

TEST(RankVariablesTest, HalfAPairIsRefused) {
  EXPECT_THAT(refusal_of([] {
                read_open_mpi({{"OMPI_COMM_WORLD_RANK", "0"}});
              }),
              HasSubstr("OMPI_COMM_WORLD_RANK is set but OMPI_COMM_WORLD_SIZE is not"));
  EXPECT_THAT(refusal_of([] {
                read_pmi({{"PMI_SIZE", "2"}});
              }),
              HasSubstr("PMI_SIZE is set but PMI_RANK is not"));
}

TEST(RankVariablesTest, BadCountsAreRefusedWithTheirVariable) {
  EXPECT_THAT(refusal_of([] {
                read_pmi({{"PMI_RANK", "x"}, {"PMI_SIZE", "2"}});
              }),
              AllOf(HasSubstr("PMI_RANK"), HasSubstr("got 'x'")));
  EXPECT_THAT(refusal_of([] {
                read_pmi({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}});
              }),
              HasSubstr("PMI_RANK=2 is not below PMI_SIZE=2"));
  EXPECT_THAT(refusal_of([] { read_pmi({{"PMI_RANK", "0"}, {"PMI_SIZE", "0"}}); }), HasSubstr("PMI_SIZE"));
}

TEST(RankVariablesTest, ShellOfAnAllocationIsNoStep) {
  EXPECT_FALSE(read_slurm({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "7"}}, 0));
}

TEST(RankVariablesTest, SlurmStepNamesItsLeader) {
  const Environment step = {{"SLURM_PROCID", "3"},       {"SLURM_STEP_NUM_TASKS", "4"},
                            {"SLURM_LOCALID", "1"},      {"SLURM_STEP_NODELIST", "gpu[03-04]"},
                            {"SLURM_JOB_ID", "1234567"}, {"SLURM_NTASKS", "8"}};
  const auto info = read_slurm(step, 0);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->rank, 3);
  EXPECT_EQ(info->size, 4);
  EXPECT_EQ(info->local_rank, 1);
  EXPECT_EQ(info->leader_address, "gpu03:24567");
  EXPECT_EQ(read_slurm(step, 4000)->leader_address, "gpu03:4000");
}

TEST(RankVariablesTest, SlurmSaysHowManyTasksANodeHas) {
  Environment step = {{"SLURM_PROCID", "0"},
                      {"SLURM_STEP_NUM_TASKS", "7"},
                      {"SLURM_LOCALID", "0"},
                      {"SLURM_NODEID", "3"},
                      {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}};
  EXPECT_EQ(read_slurm(step, 0)->local_size, 1);
  step["SLURM_NODEID"] = "2";
  EXPECT_EQ(read_slurm(step, 0)->local_size, 2) << "also of the first task of a node";
  step["SLURM_STEP_TASKS_PER_NODE"] = "two";
  EXPECT_EQ(read_slurm(step, 0)->local_size, 1);
  EXPECT_EQ(slurm_tasks_of_node("4", 0), 4);
  EXPECT_EQ(slurm_tasks_of_node("4", 1), 0);
  EXPECT_EQ(slurm_tasks_of_node("1,3(x2),5", 2), 3);
  EXPECT_EQ(slurm_tasks_of_node("1,3(x2),5", 3), 5);
  EXPECT_EQ(slurm_tasks_of_node("", 0), 0);
}

TEST(RankVariablesTest, FirstNodeOfAList) {
  EXPECT_EQ(first_slurm_node("cpu1"), "cpu1");
  EXPECT_EQ(first_slurm_node("cpu1,cpu2"), "cpu1");
  EXPECT_EQ(first_slurm_node("cpu1,gpu[2-3]"), "cpu1");
  EXPECT_EQ(first_slurm_node("gpu[003-007,9],cpu1"), "gpu003");
  EXPECT_EQ(first_slurm_node("gpu[9,11]"), "gpu9");
  EXPECT_EQ(first_slurm_node("rack[2]-ib,cpu"), "rack2-ib");
}

TEST(RankVariablesTest, TorchrunLeaderStandsBesideTheAgentsStore) {
  Environment environment = {{"RANK", "1"},           {"WORLD_SIZE", "2"},
                             {"LOCAL_RANK", "1"},     {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "host"}, {"MASTER_PORT", "29500"}};
  EXPECT_EQ(read_torchrun(environment, 0)->leader_address, "host:29500");
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(read_torchrun(environment, 0)->leader_address, "host:29501");
  EXPECT_EQ(read_torchrun(environment, 4000)->leader_address, "host:4000");
  environment["MASTER_ADDR"] = "fd00::1";
  EXPECT_EQ(read_torchrun(environment, 0)->leader_address, "[fd00::1]:29501");
}

}  // namespace
}  // namespace braid::launch
