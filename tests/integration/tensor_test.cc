// Strategy TENSOR: layers cut over workers, in groups that share the rows. Whole jobs as processes over TCP
// and MPI: the losses and evaluations of one process, checkpoints that all strategies share, lost workers,
// what a plan says.
#include <gmock/gmock.h>
#include <signal.h>

#include "tests/integration/checkpoints.h"
#include "tests/support/missing.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kTensorJob = R"(
name: "cut" seed: 3 steps: 20
model { name: "din" hidden: 16 hidden: 8 embedding_dim: 8 sparse_tables: true }
input {
  format: GENERATOR generator { rows: 600 test_rows: 128 } global_batch_size: 48
  columns { name: "age" kind: NUMERIC }
  columns { name: "city" kind: CATEGORICAL buckets: 7 }
  columns { name: "item" kind: CATEGORICAL buckets: 90 output: "item" }
  columns { name: "history" kind: CATEGORICAL buckets: 90 length: 5 output: "history" }
  columns { name: "clicked" kind: LABEL }
}
optimizer { kind: MOMENTUM learning_rate: 0.02 }
evaluation { every_steps: 5 metric: AUC }
streams { count: 1 policy: NONE }
runtime { intra_op_threads: 1 device: CPU }
)";

class TensorTest : public IntegrationTest {
 protected:
  Job job(std::vector<std::string> more = {}) const {
    return {write("job.pbtxt", kTensorJob), "", std::move(more)};
  }
  static Job cut(const Job& job, int data = 1) {
    return job.with({"strategy.kind=TENSOR", "strategy.mesh.data=" + std::to_string(data),
                     "strategy.tensor.min_width=1"});
  }
  static void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6) << "step " << i;
  }
};

TEST_F(TensorTest, LossesAndEvaluationsAreThoseOfOneProcess) {
  Cluster alone(directory() / "alone", job(), {1, 0});
  alone.expect_success();
  const std::vector<float> expected = losses_of(alone.steps_file(0));
  ASSERT_EQ(expected.size(), 20u);
  for (const int data : {1, 2}) {
    Cluster cluster(directory() / std::to_string(data), cut(job(), data), {2 * data, 0});
    cluster.expect_success();
    for (int w = 0; w < 2 * data; ++w) expect_near(losses_of(cluster.steps_file(w)), expected);
    ASSERT_TRUE(result_of(alone.worker(0)).quality);
    ASSERT_TRUE(result_of(cluster.worker(0)).quality);
    EXPECT_NEAR(*result_of(cluster.worker(0)).quality, *result_of(alone.worker(0)).quality, 1e-3);
    EXPECT_FALSE(result_of(cluster.worker(1)).quality);
    EXPECT_THAT(cluster.worker(0).err(), HasSubstr("of 2 workers, "));
  }
}

TEST_F(TensorTest, UnderLaunch) {
  const auto launched =
      run("launch", {"launch", "--workers", "2", "--", "train", "--job", job().file, "--set",
                     "strategy.kind=TENSOR", "--set", "strategy.tensor.min_width=1", "--set",
                     "streams.policy=AUTO", "--set", "streams.count=4"});
  EXPECT_EQ(launched->exit_code(), 0) << launched->err();
  EXPECT_THAT(launched->out(), HasSubstr("result: "));
}

TEST_F(TensorTest, OverMpi) {
  if (mpirun_is_missing()) GTEST_SKIP() << missing::kMpirun;
  const std::vector<float> expected = train("alone", job({"evaluation.enabled=false"}));
  const Job of_mpi = cut(
      job({"evaluation.enabled=false", "strategy.backend=MPI", "metrics.steps_file=" + path("%r.steps")}), 2);
  Process mpirun(under_mpirun(4, of_mpi.arguments()), {}, directory() / "mpirun");
  EXPECT_EQ(mpirun.exit_code(), 0) << mpirun.err();
  for (const char* rank : {"worker-0.steps", "worker-1.steps", "worker-2.steps", "worker-3.steps"})
    expect_near(losses_of(path(rank)), expected);
}

/// Between meshes, one process, other strategies and what reads checkpoints. The directory is the leader's.
TEST_F(TensorTest, CheckpointsAreThoseOfAllStrategies) {
  const Job plain = job({"evaluation.enabled=false"});
  const auto saved = [&](const Job& of, const std::string& name, int steps) {
    return of.with(checkpoints_in(directory() / name, 10)).with({"steps=" + std::to_string(steps)});
  };
  Cluster whole(directory() / "whole", saved(cut(plain), "whole-ckpt", 20), {2, 0});
  whole.expect_success();
  const Values expected = values_of_newest(directory() / "whole-ckpt");
  EXPECT_GT(expected.size(), 20u);
  Cluster(directory() / "first", saved(cut(plain), "ckpt", 10), {2, 0}).expect_success();
  const auto resumed = [&](const Job& of, const std::string& name, Cluster::Shape shape) {
    std::filesystem::copy(directory() / "ckpt", directory() / (name + "-ckpt"),
                          std::filesystem::copy_options::recursive);
    Cluster cluster(directory() / name, saved(of, name + "-ckpt", 20), shape, {"--resume"});
    cluster.expect_success();
    return values_of_newest(directory() / (name + "-ckpt"));
  };
  EXPECT_EQ(resumed(cut(plain), "same", {2, 0}), expected);
  const auto names = [](const Values& values) {
    std::vector<std::string> all;
    for (const auto& each : values) all.push_back(each.first);
    return all;
  };
  EXPECT_EQ(names(resumed(plain, "one", {1, 0})), names(expected));
  EXPECT_EQ(names(resumed(cut(plain, 2), "four", {4, 0})), names(expected));
  resumed(plain.with({"strategy.kind=HYBRID"}), "hybrid", {2, 0});
  const auto diff = run("diff", {"ckpt", "diff", (directory() / "whole-ckpt").string(),
                                 (directory() / "one-ckpt").string(), "--tolerance", "1e-5"});
  EXPECT_EQ(diff->exit_code(), 0) << diff->out() << diff->err();
  const auto evaluated = run("evaluated", {"evaluate", "--job", plain.file, "--set",
                                           "checkpoint.directory=" + (directory() / "whole-ckpt").string()});
  EXPECT_EQ(evaluated->exit_code(), 0) << evaluated->err();
}

/// Of a table that servers have, a checkpoint has the rows that were touched; the others, and their slots,
/// begin as in one process.
TEST_F(TensorTest, TablesOfServersGoOnInSlices) {
  const Job plain = job({"evaluation.enabled=false", "optimizer.kind=ADAGRAD", "input.shuffle=false"});
  const auto saved = [&](const Job& of, const std::string& name, int steps) {
    return of.with(checkpoints_in(directory() / name, 3)).with({"steps=" + std::to_string(steps)});
  };
  Cluster(directory() / "first", saved(plain.with({"strategy.kind=PS"}), "ckpt", 3), {1, 1}).expect_success();
  const auto resumed = [&](const Job& of, const std::string& name, int workers) {
    std::filesystem::copy(directory() / "ckpt", directory() / (name + "-ckpt"),
                          std::filesystem::copy_options::recursive);
    Cluster cluster(directory() / name, saved(of, name + "-ckpt", 12), {workers, 0}, {"--resume"});
    cluster.expect_success();
    return losses_of(cluster.steps_file(0), 3);
  };
  const std::vector<float> expected = resumed(plain, "one", 1);
  ASSERT_EQ(expected.size(), 9u);
  expect_near(resumed(cut(plain).with({"strategy.tensor.layer=match: '.*/table' split: COLUMN"}), "two", 2),
              expected);
}

TEST_F(TensorTest, AllStopEarlyBehindTheSameStep) {
  const Job stops = cut(
      job({"steps=200", "evaluation.early_stopping.patience=1", "evaluation.early_stopping.min_delta=0.5"}),
      2);
  Cluster cluster(directory() / "stops", stops, {4, 0});
  cluster.expect_success();
  const std::size_t steps = losses_of(cluster.steps_file(0)).size();
  EXPECT_LT(steps, 200u);
  for (int w = 1; w < 4; ++w) EXPECT_EQ(losses_of(cluster.steps_file(w)).size(), steps);
}

class TensorFaultTest : public TensorTest {};

TEST_F(TensorFaultTest, ALostWorkerIsNamed) {
  for (const int data : {1, 2}) {
    const Job endless =
        cut(job({"evaluation.enabled=false", "steps=1000000", "strategy.deadline_seconds=5"}), data);
    for (const int signal : {SIGKILL, SIGSTOP}) {
      SCOPED_TRACE(std::to_string(data) + " groups, signal " + std::to_string(signal));
      Cluster cluster(directory() / (std::to_string(data) + "-" + std::to_string(signal)), endless, {4, 0});
      ASSERT_TRUE(reaches_step(cluster.worker(0), 5)) << cluster.worker(0).err();
      cluster.worker(1).signal(signal);
      for (const int w : {0, 2, 3}) {
        EXPECT_EQ(cluster.worker(w).exit_code(std::chrono::seconds(20)), 138) << cluster.worker(w).err();
        EXPECT_THAT(cluster.worker(w).err(), HasSubstr("rank 1"));
      }
      if (signal == SIGSTOP) cluster.worker(1).signal(SIGKILL);
    }
  }
}

TEST_F(TensorTest, AskedToStopAllSaveAndGoOnLater) {
  const Job endless = cut(job({"evaluation.enabled=false", "steps=1000000"}))
                          .with(checkpoints_in(directory() / "ckpt", 1000000));
  Cluster cluster(directory() / "first", endless, {2, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 5)) << cluster.worker(0).err();
  cluster.worker(1).signal(SIGTERM);
  for (int w = 0; w < 2; ++w) EXPECT_EQ(cluster.worker(w).exit_code(), 143) << cluster.worker(w).err();
  const std::vector<std::uint64_t> saved = checkpointed_steps(directory() / "ckpt");
  ASSERT_EQ(saved.size(), 1u);
  Cluster rest(directory() / "rest", endless.with({"steps=" + std::to_string(saved[0] + 3)}), {4, 0},
               {"--resume"});
  rest.expect_success();
  EXPECT_EQ(losses_of(rest.steps_file(0), saved[0]).size(), 3u);
}

TEST_F(TensorTest, APlanShowsTheSlices) {
  const auto planned =
      run("plan", {"graph", "plan", "--job", job().file, "--workers", "4", "--set", "strategy.kind=TENSOR",
                   "--set", "strategy.mesh.data=2", "--set", "strategy.tensor.min_width=1"});
  EXPECT_EQ(planned->exit_code(), 0) << planned->err();
  EXPECT_THAT(planned->out(),
              AllOf(HasSubstr("tensor: 2 groups of 2 workers"), HasSubstr("COLUMN   "),
                    HasSubstr("ROW      "), HasSubstr("forward: "), HasSubstr("between groups: ")));
}

TEST_F(TensorTest, AMeshOfOtherWorkersIsRefusedBeforeAnythingBegins) {
  const auto refused = run("refused", {"launch", "--workers", "3", "--", "train", "--job", job().file,
                                       "--set", "strategy.kind=TENSOR", "--set", "strategy.mesh.tensor=2"});
  EXPECT_EQ(refused->exit_code(), 2);
  EXPECT_THAT(refused->err(), HasSubstr("strategy.mesh { tensor: 2 } is not of 3 workers"));
}

}  // namespace
}  // namespace braid::integration
