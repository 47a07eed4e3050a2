// resolve_cluster: which source counts, and how ranks become tasks.
#include "launch/cluster_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/expect_refused.h"

namespace braid::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Job = ClusterSpec::Job;

Environment open_mpi(int rank, int size) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank % 2)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
}

Environment with(Environment environment, const std::string& name, const std::string& value) {
  environment[name] = value;
  return environment;
}

constexpr const char* kCluster =
    R"({"cluster": {"evaluator": ["e:1"], "ps": ["p0:1", "p1:1"], "worker": ["w0:1", "w1:1"], "chief": ["c:1"]}})";

TEST(ClusterSpecTest, NothingIsASingleMachineWhoseWorkerLeads) {
  const ClusterSpec spec = resolve_cluster({}, {});
  EXPECT_TRUE(spec.single_machine());
  EXPECT_EQ(spec.task, (Task{TaskType::Worker, 0}));
  EXPECT_EQ(spec.rank, 0);
  EXPECT_EQ(spec.world, 1);
  EXPECT_TRUE(spec.is_leader());
  EXPECT_THAT(spec.describe(), HasSubstr("no cluster spec"));
}

TEST(ClusterSpecTest, RanksTakeTheTasksOfAListedClusterInOrder) {
  const std::vector<Task> order = {{TaskType::Chief, 0}, {TaskType::Worker, 0}, {TaskType::Worker, 1},
                                   {TaskType::Ps, 0},    {TaskType::Ps, 1},     {TaskType::Evaluator, 0}};
  for (int rank = 0; rank < 6; ++rank) {
    const ClusterSpec spec = resolve_cluster(with(open_mpi(rank, 6), "TF_CONFIG", kCluster), {});
    EXPECT_EQ(spec.task, order[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(spec.rank, rank < 3 ? std::optional(rank) : std::nullopt);
    EXPECT_EQ(spec.world, 3);
    EXPECT_EQ(spec.local_rank, rank % 2);
    EXPECT_TRUE(spec.addresses_known());
  }
}

TEST(ClusterSpecTest, AWorkerThatNobodyListsJoinsALeader) {
  LaunchFlags flags;
  flags.join = "127.0.0.1:4000";
  ClusterSpec spec = resolve_cluster({}, flags);
  EXPECT_EQ(spec.task, (Task{TaskType::Worker, 1}));
  EXPECT_EQ(spec.address(spec.leader()), "127.0.0.1:4000");
  EXPECT_FALSE(spec.is_leader());
  EXPECT_TRUE(spec.addresses_known());
  flags.task = "worker:7";
  spec = resolve_cluster({{"BRAID_JOIN", "other:1"}}, flags);
  EXPECT_EQ(spec.task, (Task{TaskType::Worker, 7}));
  EXPECT_EQ(spec.rank, 7);
  EXPECT_EQ(spec.address(spec.leader()), "127.0.0.1:4000") << "the flag counts before the variable";
  flags.join.clear();
  EXPECT_EQ(resolve_cluster({{"BRAID_JOIN", "h:1"}}, flags).address({TaskType::Worker, 0}), "h:1");
}

TEST(ClusterSpecTest, AWrongWayToJoinIsRefused) {
  LaunchFlags flags;
  for (const char* address : {"host", ":4000", "host:"}) {
    flags.join = address;
    EXPECT_THAT(refusal_of([&] { resolve_cluster({}, flags); }), HasSubstr("expected host:port"));
  }
  flags.join = "host:4000";
  flags.task = "worker:0";
  EXPECT_THAT(refusal_of([&] { resolve_cluster({}, flags); }), HasSubstr("must be a worker behind worker 0"));
  flags.task = "ps:1";
  EXPECT_THAT(refusal_of([&] { resolve_cluster({}, flags); }), HasSubstr("must be a worker"));
  flags.cluster = "worker=a:1,b:2";
  EXPECT_THAT(refusal_of([&] { resolve_cluster({}, flags); }), HasSubstr("--join and --cluster"));
}

TEST(ClusterSpecTest, AnotherNumberOfProcessesThanTasksIsRefused) {
  EXPECT_THAT(refusal_of([] { resolve_cluster(with(open_mpi(0, 4), "TF_CONFIG", kCluster), {}); }),
              AllOf(HasSubstr("TF_CONFIG lists 6 tasks"), HasSubstr("4 processes")));
}

TEST(ClusterSpecTest, OneTaskForAllRanksIsRefused) {
  const std::string config =
      R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})";
  EXPECT_EQ(resolve_cluster(with(open_mpi(0, 2), "TF_CONFIG", config), {}).rank, 0);
  EXPECT_THAT(refusal_of([&] { resolve_cluster(with(open_mpi(1, 2), "TF_CONFIG", config), {}); }),
              AllOf(HasSubstr("this is worker 0"), HasSubstr("is worker 1 in its order")));
  // A single process under mpirun is whatever TF_CONFIG says.
  EXPECT_EQ(resolve_cluster(with(open_mpi(0, 1), "TF_CONFIG", config), {}).rank, 0);
}

TEST(ClusterSpecTest, RanksAloneAreWorkers) {
  const ClusterSpec spec = resolve_cluster(open_mpi(1, 3), {});
  EXPECT_EQ(spec.task, (Task{TaskType::Worker, 1}));
  EXPECT_EQ(spec.world, 3);
  EXPECT_EQ(spec.leader(), (Task{TaskType::Worker, 0}));
  EXPECT_FALSE(spec.addresses_known());
  EXPECT_FALSE(spec.single_machine());
}

TEST(ClusterSpecTest, LastRanksBecomeServers) {
  LaunchFlags flags;
  flags.ps_ranks = 2;
  const ClusterSpec worker = resolve_cluster(open_mpi(1, 4), flags);
  EXPECT_EQ(worker.task, (Task{TaskType::Worker, 1}));
  EXPECT_EQ(worker.world, 2);
  const ClusterSpec server = resolve_cluster(open_mpi(3, 4), flags);
  EXPECT_EQ(server.task, (Task{TaskType::Ps, 1}));
  EXPECT_EQ(server.rank, std::nullopt);
  EXPECT_EQ(server.tasks()[3], server.task);

  flags.ps_ranks = 4;
  EXPECT_THAT(refusal_of([&] { resolve_cluster(open_mpi(0, 4), flags); }),
              HasSubstr("none of the 4 processes is left to be a worker"));
  EXPECT_THAT(refusal_of([&] { resolve_cluster({}, flags); }), HasSubstr("--ps-ranks needs the ranks"));
  EXPECT_THAT(refusal_of([&] { resolve_cluster(with(open_mpi(0, 6), "TF_CONFIG", kCluster), flags); }),
              HasSubstr("lists the servers already"));
}

TEST(ClusterSpecTest, FlagsBeatTfConfigAndTfConfigBeatsRanks) {
  LaunchFlags flags;
  flags.cluster = "worker=h0:1,h1:1;ps=h2:1";
  flags.task = "worker:1";
  const ClusterSpec spec = resolve_cluster({{"TF_CONFIG", kCluster}}, flags);
  EXPECT_EQ(spec.worker, (Job{{0, "h0:1"}, {1, "h1:1"}}));
  EXPECT_EQ(spec.ps, (Job{{0, "h2:1"}}));
  EXPECT_EQ(spec.rank, 1);
  EXPECT_EQ(spec.source, "--cluster");

  const Environment slurm = {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}};
  const std::string one = R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}})";
  EXPECT_EQ(resolve_cluster(with(slurm, "TF_CONFIG", one), {}).world, 1);
}

TEST(ClusterSpecTest, TaskFlagChoosesWithinTfConfig) {
  LaunchFlags flags;
  flags.task = "ps:1";
  EXPECT_EQ(resolve_cluster({{"TF_CONFIG", kCluster}}, flags).task, (Task{TaskType::Ps, 1}));
  flags.task = "ps:2";
  EXPECT_THAT(refusal_of([&] {
                resolve_cluster({{"TF_CONFIG", kCluster}}, flags);
              }),
              AllOf(HasSubstr("--task"), HasSubstr("ps 2: the index is out of range")));
}

TEST(ClusterSpecTest, ClusterFlagTakesJson) {
  LaunchFlags flags;
  flags.cluster = R"({"worker": ["a:1", "b:1"]})";
  flags.task = "worker:1";
  EXPECT_EQ(resolve_cluster({}, flags).rank, 1);
  flags.cluster = R"({"worker": ["a:1", "b"]})";
  EXPECT_THAT(refusal_of([&] { resolve_cluster({}, flags); }),
              HasSubstr("--cluster $.worker[1]: address 'b' has no port"));
}

TEST(ClusterSpecTest, BadFlagsAreRefused) {
  const auto refusal = [](const std::string& cluster, const std::string& task) {
    LaunchFlags flags;
    flags.cluster = cluster;
    flags.task = task;
    return refusal_of([&] { resolve_cluster({}, flags); });
  };
  EXPECT_THAT(refusal("worker", "worker:0"), HasSubstr("'worker' is not JOB=HOST:PORT"));
  EXPECT_THAT(refusal("wroker=a:1", "worker:0"), HasSubstr("unknown job 'wroker'"));
  EXPECT_THAT(refusal("worker=a:1,a:1", "worker:0"), HasSubstr("--cluster worker[1]: address 'a:1' is also"));
  EXPECT_THAT(refusal("worker=a:1", "worker"), HasSubstr("'worker' is not TYPE:INDEX"));
  EXPECT_THAT(refusal("worker=a:1", "worker:-1"), HasSubstr("'worker:-1' is not TYPE:INDEX"));
  EXPECT_THAT(refusal("worker=a:1;ps=b:1", ""), HasSubstr("not which of them this is"));
  EXPECT_THAT(refusal("", "worker:1"), HasSubstr("worker 1, but no cluster is given"));
}

TEST(ClusterSpecTest, TorchrunIsTheInnermostLauncher) {
  Environment environment = {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"RANK", "9"},
                             {"WORLD_SIZE", "16"},  {"LOCAL_RANK", "1"},           {"LOCAL_WORLD_SIZE", "8"}};
  EXPECT_EQ(resolve_cluster(environment, {}).rank, 1);
  environment["TORCHELASTIC_RUN_ID"] = "none";
  EXPECT_EQ(resolve_cluster(environment, {}).rank, 9);
  EXPECT_EQ(resolve_cluster(environment, {}).local_world, 8);
}

TEST(ClusterSpecTest, RealEnvironmentIsRead) {
  const Environment environment = process_environment();
  ASSERT_NE(find_variable(environment, "PATH"), nullptr);
  EXPECT_EQ(*find_variable(environment, "PATH"), std::getenv("PATH"));
}

}  // namespace
}  // namespace braid::launch
