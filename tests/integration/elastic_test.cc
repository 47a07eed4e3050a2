// Elastic jobs as real processes: workers are killed, stopped, asked to stop and come, and the job goes on
// with the losses of a fixed world that is resumed at that step.
#include <signal.h>

#include <fstream>
#include <thread>

#include "proto/graph.pb.h"
#include "tests/integration/checkpoints.h"
#include "tests/integration/elastic_job.h"
#include "tests/integration/exit_codes.h"

namespace braid::integration {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(ElasticFaultTest, AKilledWorkerIsGoneOnWithout) {
  Cluster cluster(directory() / "job", elastic(), {3, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 200)) << cluster.worker(0).err();
  cluster.worker(1).signal(SIGKILL);
  const std::uint64_t from = first_step(cluster.worker(0), 2);
  for (const int worker : {0, 2})
    EXPECT_EQ(cluster.worker(worker).exit_code(), 0) << cluster.worker(worker).err();
  EXPECT_THAT(cluster.worker(0).err(), HasSubstr("world 2: rank 0 of 2 workers: worker 0 ("));
  EXPECT_EQ(result_of(cluster.worker(0)).last_step, kSteps);
  expect_losses(losses_of(cluster.steps_file(0)), fixed({3, 2}, {from, kSteps}));
}

TEST_F(ElasticFaultTest, TwoAreKilledAtOnceAndOneIsLeft) {
  Cluster cluster(directory() / "job", elastic(), {3, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 200)) << cluster.worker(0).err();
  for (const int worker : {1, 2}) cluster.worker(worker).signal(SIGKILL);
  EXPECT_EQ(cluster.worker(0).exit_code(), 0) << cluster.worker(0).err();
  EXPECT_THAT(cluster.worker(0).err(), HasSubstr("rank 0 of 1 workers"));
  EXPECT_EQ(losses_of(cluster.steps_file(0)).size(), kSteps);
}

TEST_F(ElasticFaultTest, AWorkerJoinsBetweenTwoSteps) {
  const Job job = elastic();
  Cluster cluster(directory() / "job", job, {2, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 100)) << cluster.worker(0).err();
  const auto third = join(cluster, job, "third", 2);
  const std::uint64_t from = first_step(cluster.worker(0), 2);
  EXPECT_EQ(third->exit_code(), 0) << third->err();
  cluster.expect_success();
  EXPECT_THAT(third->err(), HasSubstr("world 2: rank 2 of 3 workers"));
  EXPECT_THAT(cluster.worker(1).err(), Not(HasSubstr("warning"))) << "nobody's step has failed";
  expect_losses(losses_of(cluster.steps_file(0)), fixed({2, 3}, {from, kSteps}));
}

TEST_F(ElasticFaultTest, AWorkerThatBeganAloneTakesInOthersUpToTheMost) {
  const Job job = endless().with({"strategy.elastic.max_workers=2"});
  Cluster cluster(directory() / "job", job, {1, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 100)) << cluster.worker(0).err();
  const auto second = join(cluster, job, "second", 1);
  ASSERT_GT(first_step(cluster.worker(0), 2), 0U);
  const auto third = join(cluster, job, "third", 2);
  std::this_thread::sleep_for(2s);
  EXPECT_THAT(cluster.worker(0).err(), Not(HasSubstr("world 3"))) << "there is no room";
  second->signal(SIGKILL);
  EXPECT_TRUE(third->says("rank 1 of 2 workers")) << third->err();
  cluster.worker(0).signal(SIGTERM);
  EXPECT_EQ(cluster.worker(0).exit_code(30s), kTerminated) << cluster.worker(0).err();
  EXPECT_EQ(third->exit_code(30s), kTerminated) << third->err();
}

TEST_F(ElasticFaultTest, AKilledWorkerIsReplaced) {
  Cluster cluster(directory() / "job", endless(2), {2, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 100)) << cluster.worker(0).err();
  cluster.worker(1).signal(SIGKILL);
  cluster.worker(1).wait(10s);
  cluster.start_again(1);
  const std::uint64_t from = first_step(cluster.worker(0), 2);
  ASSERT_TRUE(reaches_step(cluster.worker(0), from + 100)) << cluster.worker(0).err();
  cluster.worker(0).signal(SIGTERM);
  EXPECT_THAT(cluster.exit_codes(), ElementsAre(kTerminated, kTerminated)) << cluster.worker(1).err();
}

TEST_F(ElasticFaultTest, AStoppedWorkerIsLeftBehindAndComesAgain) {
  Cluster cluster(directory() / "job", endless().with({"strategy.deadline_seconds=3"}), {3, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 100)) << cluster.worker(0).err();
  cluster.worker(1).signal(SIGSTOP);
  ASSERT_TRUE(cluster.worker(0).says("world 2: rank 0 of 2 workers")) << cluster.worker(0).err();
  const std::uint64_t from = first_step(cluster.worker(0), 2);
  ASSERT_TRUE(reaches_step(cluster.worker(0), from + 100)) << cluster.worker(0).err();
  cluster.worker(1).signal(SIGCONT);
  ASSERT_TRUE(cluster.worker(0).says("world 3: rank 0 of 3 workers")) << cluster.worker(0).err();
  EXPECT_THAT(cluster.worker(1).err(), HasSubstr("comes again as a new one"));
  const std::uint64_t third = first_step(cluster.worker(1), 3);
  EXPECT_GT(third, from);
  ASSERT_TRUE(reaches_step(cluster.worker(0), third + 100)) << cluster.worker(0).err();
  cluster.worker(0).signal(SIGTERM);
  EXPECT_THAT(cluster.exit_codes(), ElementsAre(kTerminated, kTerminated, kTerminated));
}

/// One is stopped, so that the others wait for it when they form the next world.
TEST_F(ElasticFaultTest, OneThatIsKilledWhileTheNextWorldFormsIsGoneOnWithoutToo) {
  Cluster cluster(directory() / "job", elastic(), {4, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 200)) << cluster.worker(0).err();
  cluster.worker(2).signal(SIGSTOP);
  cluster.worker(1).signal(SIGKILL);
  ASSERT_TRUE(cluster.worker(3).says("warning")) << cluster.worker(3).err();
  cluster.worker(2).signal(SIGKILL);
  for (const int worker : {0, 3})
    EXPECT_EQ(cluster.worker(worker).exit_code(), 0) << cluster.worker(worker).err();
  EXPECT_THAT(cluster.worker(0).err(), HasSubstr("of 2 workers"));
  EXPECT_EQ(losses_of(cluster.steps_file(0)).size(), kSteps);
}

/// At whatever point of the next world's making.
TEST_F(ElasticFaultTest, OneThatIsKilledJustBehindAnotherHoldsNobodyUp) {
  for (const auto delay : {0ms, 2ms, 5ms, 10ms, 20ms}) {
    Cluster cluster(directory() / ("job-" + std::to_string(delay.count())), elastic(), {3, 0});
    ASSERT_TRUE(reaches_step(cluster.worker(0), 100)) << cluster.worker(0).err();
    cluster.worker(1).signal(SIGKILL);
    std::this_thread::sleep_for(delay);
    cluster.worker(2).signal(SIGKILL);
    ASSERT_EQ(cluster.worker(0).exit_code(), 0) << cluster.worker(0).err();
    EXPECT_EQ(losses_of(cluster.steps_file(0)).size(), kSteps);
  }
}

TEST_F(ElasticFaultTest, TooFewWaitAndThenEndWithTheNameOfWhoIsMissing) {
  const Job job = endless(2).with({"strategy.elastic.wait_seconds=2", "checkpoint.every_steps=50",
                                   "checkpoint.directory=" + path("checkpoints")});
  Cluster cluster(directory() / "job", job, {2, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 200)) << cluster.worker(0).err();
  cluster.worker(1).signal(SIGKILL);
  EXPECT_EQ(cluster.worker(0).exit_code(15s), kPeerLost);
  EXPECT_THAT(cluster.worker(0).err(),
              AllOf(HasSubstr("too few workers: 1 of at least 2 workers is there; missing: worker 1 ("),
                    HasSubstr("its connection ended")));
  EXPECT_FALSE(checkpointed_steps(path("checkpoints")).empty());
}

TEST_F(ElasticFaultTest, ALeaderThatIsAskedToStopBetweenWorldsSaves) {
  const Job job = endless(2).with({"strategy.elastic.wait_seconds=60", "checkpoint.every_steps=1000000",
                                   "checkpoint.directory=" + path("checkpoints")});
  Cluster cluster(directory() / "job", job, {3, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 100)) << cluster.worker(0).err();
  for (const int worker : {1, 2}) cluster.worker(worker).signal(SIGKILL);
  ASSERT_TRUE(cluster.worker(0).says("warning")) << cluster.worker(0).err();
  std::this_thread::sleep_for(300ms);
  cluster.worker(0).signal(SIGTERM);
  EXPECT_EQ(cluster.worker(0).exit_code(15s), kTerminated) << cluster.worker(0).err();
  EXPECT_EQ(result_of(cluster.worker(0)).last_step, losses_of(cluster.steps_file(0)).size());
  EXPECT_FALSE(checkpointed_steps(path("checkpoints")).empty());
}

TEST_F(ElasticFaultTest, AWorkerThatIsAskedToStopLeavesAlone) {
  Cluster cluster(directory() / "job", elastic(), {3, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 100)) << cluster.worker(0).err();
  cluster.worker(2).signal(SIGTERM);
  EXPECT_EQ(cluster.worker(2).exit_code(30s), kTerminated) << cluster.worker(2).err();
  EXPECT_THAT(cluster.worker(2).err(), HasSubstr("the others go on"));
  const std::uint64_t from = first_step(cluster.worker(0), 2);
  for (const int worker : {0, 1})
    EXPECT_EQ(cluster.worker(worker).exit_code(), 0) << cluster.worker(worker).err();
  EXPECT_THAT(cluster.worker(0).err(), Not(HasSubstr("warning"))) << "nobody's step has failed";
  expect_losses(losses_of(cluster.steps_file(0)), fixed({3, 2}, {from, kSteps}));
}

TEST_F(ElasticFaultTest, WithoutItsLeaderTheJobEnds) {
  Cluster cluster(directory() / "job", endless(), {3, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 100)) << cluster.worker(0).err();
  cluster.worker(0).signal(SIGKILL);
  for (const int worker : {1, 2}) {
    EXPECT_EQ(cluster.worker(worker).exit_code(15s), kPeerLost);
    EXPECT_THAT(cluster.worker(worker).err(), HasSubstr("[membership] the leader at 127.0.0.1:"));
  }
}

TEST_F(ElasticFaultTest, AStoppedLeaderIsMissedAndGoesOnForNobody) {
  const Job job = endless(2).with({"strategy.deadline_seconds=2", "strategy.elastic.wait_seconds=3"});
  Cluster cluster(directory() / "job", job, {3, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 100)) << cluster.worker(0).err();
  cluster.worker(0).signal(SIGSTOP);
  for (const int worker : {1, 2}) {
    EXPECT_EQ(cluster.worker(worker).exit_code(60s), kPeerLost);
    EXPECT_THAT(cluster.worker(worker).err(), HasSubstr("[membership] the leader at 127.0.0.1:"));
  }
  cluster.worker(0).signal(SIGCONT);
  EXPECT_EQ(cluster.worker(0).exit_code(30s), kPeerLost);
  EXPECT_THAT(cluster.worker(0).err(), HasSubstr("too few workers: 1 of at least 2"));
}

TEST_F(ElasticFaultTest, AWorkerWithAnotherJobIsRefusedAndHarmsNobody) {
  const Job job = elastic();
  Cluster cluster(directory() / "job", job, {2, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 50)) << cluster.worker(0).err();
  const auto other = join(cluster, job.with({"optimizer.learning_rate=0.5"}), "other", 2);
  EXPECT_EQ(other->exit_code(30s), 2);
  EXPECT_THAT(other->err(), HasSubstr("and the leader of job"));
  cluster.expect_success();
  EXPECT_THAT(cluster.worker(0).err(), Not(HasSubstr("world 2")));
}

TEST_F(ElasticFaultTest, LaunchStartsALostWorkerAgain) {
  std::vector<std::string> arguments{"launch", "--workers",      "3", "--min-workers",
                                     "2",      "--max-restarts", "1", "--"};
  for (const std::string& argument : endless().arguments()) arguments.push_back(argument);
  Process launcher(braid(arguments), {}, directory() / "launch");
  ASSERT_TRUE(launcher.says("step 1/")) << launcher.err();
  const pid_t worker = child_with(launcher.pid(), R"("index":2)");
  ASSERT_GT(worker, 0);
  ASSERT_EQ(::kill(worker, SIGKILL), 0);
  EXPECT_TRUE(launcher.says("world 2: rank 0 of 2 workers")) << launcher.err();
  EXPECT_TRUE(launcher.says("world 3: rank 0 of 3 workers")) << launcher.err();
  EXPECT_THAT(launcher.err(), HasSubstr("the others go on, and it is started again"));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.exit_code(), kTerminated) << launcher.err();
}

/// Adds to the graph in `file` that the loss reads how many steps there were, which the step has counted.
std::string count_steps(const std::string& file, const std::string& loss) {
  GraphDef graph;
  std::ifstream in(file, std::ios::binary);
  EXPECT_TRUE(graph.ParseFromIstream(&in));
  const auto add = [&](const char* name, const char* op, std::vector<std::string> inputs) -> NodeDef& {
    NodeDef& node = *graph.add_node();
    node.set_name(name);
    node.set_op(op);
    for (std::string& input : inputs) *node.add_input() = std::move(input);
    return node;
  };
  const auto constant = [&](const char* name, float value) {
    NodeDef& node = add(name, "Const", {});
    (*node.mutable_attr())["dtype"].set_type(DT_FLOAT);
    TensorProto& tensor = *(*node.mutable_attr())["value"].mutable_tensor();
    tensor.set_dtype(DT_FLOAT);
    tensor.mutable_tensor_shape();
    tensor.add_float_val(value);
  };
  const auto typed = [](NodeDef& node, const char* attr) { (*node.mutable_attr())[attr].set_type(DT_FLOAT); };
  NodeDef& handle = add("counted", "VarHandleOp", {});
  typed(handle, "dtype");
  (*handle.mutable_attr())["shape"].mutable_shape();
  (*handle.mutable_attr())["shared_name"].set_s("counted");
  constant("counted/one", 1);
  constant("counted/none", 0);
  typed(add("counted/Assign", "AssignVariableOp", {"counted", "counted/none"}), "dtype");
  typed(add("counted/add", "AssignAddVariableOp", {"counted", "counted/one"}), "dtype");
  typed(add("counted/read", "ReadVariableOp", {"counted", "^counted/add"}), "dtype");
  typed(add("counted/nothing", "Mul", {"counted/read", "counted/none"}), "T");
  typed(add("counted/loss", "AddV2", {loss, "counted/nothing"}), "T");
  std::ofstream out(file, std::ios::binary);
  EXPECT_TRUE(graph.SerializeToOstream(&out));
  return "counted/loss";
}

/// A model whose step writes a variable before its gradients are there.
Job counting_job(const std::string& file, const Process& exported) {
  const std::string out = exported.out(), mark = "loss '";
  const std::size_t at = out.find(mark) + mark.size();
  const std::string loss = count_steps(file, out.substr(at, out.find('\'', at) - at));
  return {"wide_deep_generated.pbtxt",
          "",
          {"model.name=", "name=counting", "evaluation.metric=RMSE", "model.graph.file=" + file,
           "model.graph.loss=" + loss, "runtime.intra_op_threads=1", "runtime.device=CPU",
           "evaluation.enabled=false", "streams.policy=NONE", "input.global_batch_size=96",
           "strategy.kind=ALLREDUCE", "strategy.deadline_seconds=20", "metrics.progress_seconds=0.05",
           "steps=3000", "strategy.elastic.min_workers=1"}};
}

TEST_F(ElasticFaultTest, AStepThatFailsHalfWayGoesBackToTheCheckpoint) {
  const std::string file = path("counting.pb");
  const auto exported =
      run("export", {"graph", "export", "--out", file, "--job",
                     std::string(BRAID_SOURCE_DIR) + "/examples/jobs/wide_deep_generated.pbtxt", "--set",
                     "model.hidden=8,4"});
  ASSERT_EQ(exported->exit_code(), 0) << exported->err();
  const Job job = counting_job(file, *exported);
  {
    Cluster cluster(directory() / "saved",
                    job.with({"checkpoint.directory=" + path("checkpoints"), "checkpoint.every_steps=100"}),
                    {3, 0});
    ASSERT_TRUE(reaches_step(cluster.worker(0), 250)) << cluster.worker(0).err();
    cluster.worker(1).signal(SIGKILL);
    EXPECT_EQ(first_step(cluster.worker(0), 2) % 100, 0U);
    EXPECT_THAT(cluster.worker(0).err(),
                AllOf(HasSubstr("variables are not consistent"), HasSubstr("resumed at step")));
    for (const int worker : {0, 2})
      EXPECT_EQ(cluster.worker(worker).exit_code(), 0) << cluster.worker(worker).err();
    EXPECT_EQ(values_of_newest(path("checkpoints")).at("counted"), (std::vector<float>{3000}));
  }
  Cluster cluster(directory() / "lost", job, {2, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 50)) << cluster.worker(0).err();
  cluster.worker(1).signal(SIGKILL);
  EXPECT_EQ(cluster.worker(0).exit_code(30s), kPeerLost);
  EXPECT_THAT(cluster.worker(0).err(), HasSubstr("there is no checkpoint to go back to"));
}

/// Nothing but a ping every 10 s goes over a worker's connection to the leader (grpc_channel.cc). gRPC ends a
/// connection at the fourth ping, after 40 s ("too_many_pings"), unless the server allows them
/// (grpc_server.cc).
TEST_F(ElasticFaultTest, AQuietWhileLosesNobody) {
  const Job job = endless().with({"strategy.deadline_seconds=5", "strategy.elastic.wait_seconds=5"});
  Cluster cluster(directory() / "job", job, {2, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 50)) << cluster.worker(0).err();
  std::this_thread::sleep_for(45s);
  EXPECT_THAT(cluster.worker(0).err() + cluster.worker(1).err(), Not(HasSubstr("warning")));
  cluster.worker(0).signal(SIGTERM);
  EXPECT_THAT(cluster.exit_codes(), ElementsAre(kTerminated, kTerminated));
}

TEST_F(ElasticFaultTest, WhatCannotBeElasticIsRefused) {
  const auto refusal = [&](const std::vector<std::string>& set) {
    auto process = run("refused", elastic().with(set).arguments());
    EXPECT_EQ(process->exit_code(), 2);
    return process->err();
  };
  EXPECT_THAT(refusal({"strategy.kind=PIPELINE"}),
              HasSubstr("strategy.elastic is for strategy.kind ALLREDUCE"));
  EXPECT_THAT(refusal({"strategy.kind=HYBRID"}), HasSubstr("under HYBRID needs checkpoint.directory"));
  EXPECT_THAT(refusal({"strategy.backend=MPI"}), HasSubstr("needs strategy.backend RING or NCCL"));
  EXPECT_THAT(refusal({"strategy.shard=OPTIMIZER"}), HasSubstr("does not go with strategy.shard"));
  EXPECT_THAT(refusal({"strategy.elastic.min_workers=4", "strategy.elastic.max_workers=3"}),
              HasSubstr("max_workers is 3, below min_workers, 4"));
  EXPECT_THAT(refusal({"strategy.elastic.min_workers=97"}), HasSubstr("a step has 96 rows"));
  std::vector<std::string> joins = plain().arguments();
  joins.insert(joins.end(), {"--join", "127.0.0.1:1"});
  auto process = run("joins", joins);
  EXPECT_EQ(process->exit_code(), 2);
  EXPECT_THAT(process->err(), HasSubstr("--join is for jobs with strategy.elastic"));
}

}  // namespace
}  // namespace braid::integration
