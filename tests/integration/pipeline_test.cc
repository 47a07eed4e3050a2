// Strategy PIPELINE: parts of the model on different workers. Whole jobs as processes over TCP and MPI: the
// bits of one process, evaluations, checkpoints that all strategies share, a lost worker, what a plan says.
#include <gmock/gmock.h>
#include <signal.h>

#include "tests/integration/checkpoints.h"
#include "tests/support/missing.h"

namespace braid::integration {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPipelineJob = R"(
name: "pipelined" seed: 3 steps: 20
model { name: "din" hidden: 16 hidden: 8 embedding_dim: 8 sparse_tables: true }
input {
  format: GENERATOR generator { rows: 600 test_rows: 128 } global_batch_size: 48
  columns { name: "age" kind: NUMERIC }
  columns { name: "city" kind: CATEGORICAL buckets: 7 }
  columns { name: "item" kind: CATEGORICAL buckets: 90 output: "item" }
  columns { name: "history" kind: CATEGORICAL buckets: 90 length: 5 output: "history" }
  columns { name: "clicked" kind: LABEL }
}
optimizer { kind: ADAM learning_rate: 0.01 }
evaluation { every_steps: 5 metric: AUC }
streams { count: 1 policy: NONE }
runtime { intra_op_threads: 1 device: CPU }
)";

class PipelineTest : public IntegrationTest {
 protected:
  Job job(std::vector<std::string> more = {}) const {
    return {write("job.pbtxt", kPipelineJob), "", std::move(more)};
  }
  static Job pipelined(const Job& job) {
    return job.with({"strategy.kind=PIPELINE", "strategy.pipeline.micro_batches=4"});
  }
  static Job accumulated(const Job& job) { return job.with({"optimizer.accumulate_steps=4"}); }
};

TEST_F(PipelineTest, LossesAndEvaluationsAreThoseOfOneProcess) {
  Cluster alone(directory() / "alone", accumulated(job()), {1, 0});
  alone.expect_success();
  const std::vector<float> expected = losses_of(alone.steps_file(0));
  ASSERT_EQ(expected.size(), 20u);
  for (const char* schedule : {"ONE_F_ONE_B", "GPIPE"}) {
    const Job cut = pipelined(job()).with({std::string("strategy.pipeline.schedule=") + schedule});
    Cluster cluster(directory() / schedule, cut, {3, 0});
    cluster.expect_success();
    for (int w = 0; w < 3; ++w) EXPECT_EQ(losses_of(cluster.steps_file(w)), expected) << schedule << w;
    ASSERT_TRUE(result_of(alone.worker(0)).quality);
    EXPECT_EQ(result_of(cluster.worker(0)).quality, result_of(alone.worker(0)).quality);
    EXPECT_THAT(cluster.worker(0).err(), HasSubstr("pipeline: 3 stages by the cost model, 4 micro-batches"));
  }
}

TEST_F(PipelineTest, TheFirstEvaluationHasTheOthersVariables) {
  const Job once = job({"evaluation.every_steps=0"});
  Cluster alone(directory() / "alone", accumulated(once), {1, 0});
  alone.expect_success();
  const std::optional<double> expected = result_of(alone.worker(0)).quality;
  ASSERT_TRUE(expected);
  for (const int workers : {2, 3}) {
    Cluster cluster(directory() / std::to_string(workers), pipelined(once), {workers, 0});
    cluster.expect_success();
    EXPECT_EQ(result_of(cluster.worker(0)).quality, expected) << workers;
  }
}

/// All ranks have its 17 rows.
TEST_F(PipelineTest, OnlyTheLeaderEvaluatesMadeRows) {
  const Job points = linear_regression().with({"steps=12", "evaluation.enabled=true"});
  Cluster alone(directory() / "alone", points, {1, 0});
  alone.expect_success();
  Cluster cluster(directory() / "cut",
                  points.with({"strategy.kind=PIPELINE", "strategy.pipeline.micro_batches=1"}), {3, 0});
  cluster.expect_success();
  ASSERT_TRUE(result_of(alone.worker(0)).quality);
  EXPECT_EQ(result_of(cluster.worker(0)).quality, result_of(alone.worker(0)).quality);
  EXPECT_FALSE(result_of(cluster.worker(1)).quality);
}

TEST_F(PipelineTest, UnderLaunch) {
  const auto launched =
      run("launch", {"launch", "--workers", "2", "--", "train", "--job", job().file, "--set",
                     "strategy.kind=PIPELINE", "--set", "streams.policy=AUTO", "--set", "streams.count=4"});
  EXPECT_EQ(launched->exit_code(), 0) << launched->err();
  EXPECT_THAT(launched->out(), HasSubstr("result: "));
}

TEST_F(PipelineTest, OverMpi) {
  if (mpirun_is_missing()) GTEST_SKIP() << missing::kMpirun;
  const std::vector<float> expected = train("alone", accumulated(job({"evaluation.enabled=false"})));
  const Job cut = pipelined(
      job({"evaluation.enabled=false", "strategy.backend=MPI", "metrics.steps_file=" + path("%r.steps")}));
  Process mpirun(under_mpirun(3, cut.arguments()), {}, directory() / "mpirun");
  EXPECT_EQ(mpirun.exit_code(), 0) << mpirun.err();
  for (const char* rank : {"worker-0.steps", "worker-1.steps", "worker-2.steps"})
    EXPECT_EQ(losses_of(path(rank)), expected) << rank;
}

/// Between PIPELINE of 3 and 2 workers, one process, and parameter servers.
TEST_F(PipelineTest, CheckpointsAreThoseOfAllStrategies) {
  const Job plain = job({"evaluation.enabled=false"});
  const auto saved = [&](const Job& of, const std::string& name, int steps) {
    return of.with(checkpoints_in(directory() / name, 10)).with({"steps=" + std::to_string(steps)});
  };
  Cluster whole(directory() / "whole", saved(pipelined(plain), "whole-ckpt", 20), {3, 0});
  whole.expect_success();
  const Values expected = values_of_newest(directory() / "whole-ckpt");
  EXPECT_GT(expected.size(), 20u);
  Cluster(directory() / "first", saved(pipelined(plain), "ckpt", 10), {3, 0}).expect_success();
  const auto resumed = [&](const Job& of, const std::string& name, Cluster::Shape shape) {
    std::filesystem::copy(directory() / "ckpt", directory() / (name + "-ckpt"),
                          std::filesystem::copy_options::recursive);
    Cluster cluster(directory() / name, saved(of, name + "-ckpt", 20), shape, {"--resume"});
    cluster.expect_success();
    return values_of_newest(directory() / (name + "-ckpt"));
  };
  EXPECT_EQ(resumed(accumulated(plain), "one", {1, 0}), expected);
  EXPECT_EQ(resumed(pipelined(plain), "two", {2, 0}), expected);
  const Values servers = resumed(accumulated(plain.with({"strategy.kind=PS"})), "servers", {1, 1});
  EXPECT_FALSE(servers.empty());
}

class PipelineGroupsTest : public PipelineTest {
 protected:
  static Job in_groups(const Job& job) {
    return pipelined(job).with({"strategy.mesh.data=2", "strategy.mesh.pipeline=2"});
  }
};

/// Sums over groups are in another order.
TEST_F(PipelineGroupsTest, LossesAndEvaluationsAreNearOneProcess) {
  const Job plain = job({"optimizer.kind=MOMENTUM"});
  Cluster alone(directory() / "alone", accumulated(plain), {1, 0});
  alone.expect_success();
  const std::vector<float> expected = losses_of(alone.steps_file(0));
  ASSERT_EQ(expected.size(), 20u);
  Cluster cluster(directory() / "groups", in_groups(plain), {4, 0});
  cluster.expect_success();
  for (int w = 0; w < 4; ++w) {
    const std::vector<float> losses = losses_of(cluster.steps_file(w));
    ASSERT_EQ(losses.size(), expected.size()) << w;
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-6) << i;
  }
  ASSERT_TRUE(result_of(alone.worker(0)).quality);
  EXPECT_NEAR(*result_of(cluster.worker(0)).quality, *result_of(alone.worker(0)).quality, 1e-3);
  EXPECT_THAT(cluster.worker(0).err(), HasSubstr("pipeline: 2 groups of 2 stages by the cost model"));
}

TEST_F(PipelineGroupsTest, CheckpointsGoBetweenMeshesAndOneProcess) {
  const Job plain = job({"evaluation.enabled=false", "optimizer.kind=MOMENTUM"});
  const auto saved = [&](const Job& of, int steps) {
    return of.with(checkpoints_in(directory() / "ckpt", 10)).with({"steps=" + std::to_string(steps)});
  };
  const std::vector<float> whole = train("whole", accumulated(plain).with({"steps=40"}));
  Cluster(directory() / "groups", saved(in_groups(plain), 10), {4, 0}).expect_success();
  Cluster(directory() / "one", saved(accumulated(plain), 20), {1, 0}, {"--resume"}).expect_success();
  Cluster(directory() / "cut", saved(pipelined(plain), 30), {3, 0}, {"--resume"}).expect_success();
  Cluster last(directory() / "last", saved(in_groups(plain), 40), {4, 0}, {"--resume"});
  last.expect_success();
  const std::vector<float> losses = losses_of(last.steps_file(0), 30);
  ASSERT_EQ(losses.size(), 10u);
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], whole[30 + i], 1e-6) << i;
}

TEST_F(PipelineGroupsTest, AMeshOfOtherWorkersIsRefusedBeforeAnythingBegins) {
  Cluster cluster(directory() / "odd", in_groups(job()), {3, 0});
  EXPECT_EQ(cluster.worker(0).exit_code(), 2);
  EXPECT_THAT(cluster.worker(0).err(),
              HasSubstr("strategy.mesh { data: 2 pipeline: 2 } is not of 3 workers, which there are"));
}

/// Of another group, and of the same stage.
TEST_F(PipelineGroupsTest, ALostWorkerIsNamed) {
  const Job endless =
      in_groups(job({"evaluation.enabled=false", "steps=1000000", "strategy.deadline_seconds=5"}));
  for (const int signal : {SIGKILL, SIGSTOP}) {
    Cluster cluster(directory() / std::to_string(signal), endless, {4, 0});
    ASSERT_TRUE(reaches_step(cluster.worker(0), 5)) << cluster.worker(0).err();
    cluster.worker(2).signal(signal);
    for (const int w : {0, 1, 3}) {
      EXPECT_EQ(cluster.worker(w).exit_code(std::chrono::seconds(20)), 138) << cluster.worker(w).err();
      EXPECT_THAT(cluster.worker(w).err(), HasSubstr("rank 2"));
    }
    if (signal == SIGSTOP) cluster.worker(2).signal(SIGKILL);
  }
}

class PipelineFaultTest : public PipelineTest {};

TEST_F(PipelineFaultTest, ALostWorkerIsNamed) {
  const Job endless =
      pipelined(job({"evaluation.enabled=false", "steps=1000000", "strategy.deadline_seconds=5"}));
  for (const int signal : {SIGKILL, SIGSTOP}) {
    Cluster cluster(directory() / std::to_string(signal), endless, {3, 0});
    ASSERT_TRUE(reaches_step(cluster.worker(0), 5)) << cluster.worker(0).err();
    cluster.worker(1).signal(signal);
    for (const int w : {0, 2}) {
      EXPECT_EQ(cluster.worker(w).exit_code(std::chrono::seconds(20)), 138) << cluster.worker(w).err();
      EXPECT_THAT(cluster.worker(w).err(), HasSubstr("rank 1"));
    }
    if (signal == SIGSTOP) cluster.worker(1).signal(SIGKILL);
  }
}

TEST_F(PipelineTest, AskedToStopAllSaveAndGoOnLater) {
  const Job endless = pipelined(job({"evaluation.enabled=false", "steps=1000000"}))
                          .with(checkpoints_in(directory() / "ckpt", 1000000));
  Cluster cluster(directory() / "first", endless, {3, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 5)) << cluster.worker(0).err();
  cluster.worker(2).signal(SIGTERM);
  for (int w = 0; w < 3; ++w) EXPECT_EQ(cluster.worker(w).exit_code(), 143) << cluster.worker(w).err();
  const std::vector<std::uint64_t> saved = checkpointed_steps(directory() / "ckpt");
  ASSERT_EQ(saved.size(), 1u);
  Cluster rest(directory() / "rest", endless.with({"steps=" + std::to_string(saved[0] + 3)}), {2, 0},
               {"--resume"});
  rest.expect_success();
  EXPECT_EQ(losses_of(rest.steps_file(0), saved[0]).size(), 3u);
}

/// Of the plan's line "memory: arena 12.3 KiB, ...".
double arena_kib(const std::string& plan) {
  const std::string begin = "memory: arena ";
  const auto at = plan.find(begin);
  return at == std::string::npos ? 0 : std::stod(plan.substr(at + begin.size()));
}

TEST_F(PipelineTest, APlanShowsTheStages) {
  const Job cut = pipelined(job());
  const auto planned = run("plan", {"graph", "plan", "--job", cut.file, "--workers", "3", "--set",
                                    "strategy.kind=PIPELINE", "--set", "strategy.pipeline.micro_batches=6"});
  EXPECT_EQ(planned->exit_code(), 0) << planned->err();
  EXPECT_THAT(planned->out(),
              HasSubstr("6 micro-batches, ONE_F_ONE_B\n  bubble: 25.0 % by (p - 1) / (m + p - 1)"));
  EXPECT_THAT(planned->out(), HasSubstr("stage 2: "));
  const auto all_forward = run(
      "gpipe", {"graph", "plan", "--job", cut.file, "--workers", "3", "--set", "strategy.kind=PIPELINE",
                "--set", "strategy.pipeline.micro_batches=24", "--set", "strategy.pipeline.schedule=GPIPE"});
  const auto in_turns = run("one", {"graph", "plan", "--job", cut.file, "--workers", "3", "--set",
                                    "strategy.kind=PIPELINE", "--set", "strategy.pipeline.micro_batches=24"});
  EXPECT_GT(arena_kib(in_turns->out()), 0);
  EXPECT_LT(arena_kib(in_turns->out()), 0.6 * arena_kib(all_forward->out()))
      << "it keeps 3 of 24 micro-batches";
}

}  // namespace
}  // namespace braid::integration
