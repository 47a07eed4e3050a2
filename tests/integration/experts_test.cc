// Strategy EXPERTS: experts of a sparse mixture on several workers. Whole jobs as processes over TCP: the
// losses and evaluations of one process, checkpoints that all strategies share, dropped tokens, lost workers,
// what a plan says.
#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/integration/checkpoints.h"
#include "tests/support/missing.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kMixtureJob = R"(
name: "mixture" seed: 3 steps: 20
model {
  name: "transformer" hidden: 16 embedding_dim: 8 classes: 4 sparse_tables: true
  mixture { experts: 4 choices: 2 groups: 4 capacity_factor: 0.8 }
}
input {
  format: GENERATOR generator { rows: 600 test_rows: 128 } global_batch_size: 48
  columns { name: "words" kind: CATEGORICAL buckets: 20 length: 6 output: "tokens" }
  columns { name: "topic" kind: CLASS buckets: 4 }
}
optimizer { kind: MOMENTUM learning_rate: 0.02 }
evaluation { every_steps: 5 metric: ACCURACY batch_size: 64 }
streams { count: 1 policy: NONE }
runtime { intra_op_threads: 1 device: CPU }
)";

class ExpertsTest : public IntegrationTest {
 protected:
  Job job(std::vector<std::string> more = {}) const {
    return {write("job.pbtxt", kMixtureJob), "", std::move(more)};
  }
  static Job spread(const Job& job, int data = 1) {
    return job.with({"strategy.kind=EXPERTS", "strategy.mesh.data=" + std::to_string(data)});
  }
  static void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-6) << "step " << i;
  }
  /// Choices that the steps of that file have dropped.
  static std::int64_t dropped_of(const std::string& file) {
    std::ifstream lines(file);
    std::int64_t dropped = 0;
    for (std::string line; std::getline(lines, line);)
      dropped += nlohmann::json::parse(line).at("dropped").get<std::int64_t>();
    return dropped;
  }
};

TEST_F(ExpertsTest, LossesEvaluationsAndDroppedTokensAreThoseOfOneProcess) {
  Cluster alone(directory() / "alone", job(), {1, 0});
  alone.expect_success();
  const std::vector<float> expected = losses_of(alone.steps_file(0));
  ASSERT_EQ(expected.size(), 20u);
  const std::int64_t dropped = dropped_of(alone.steps_file(0));
  EXPECT_GT(dropped, 0);
  EXPECT_THAT(alone.worker(0).out(), HasSubstr("\"dropped_tokens\":" + std::to_string(dropped)));
  for (const auto& [data, workers] : {std::pair(1, 2), {1, 4}, {2, 4}}) {
    SCOPED_TRACE(std::to_string(data) + " groups, " + std::to_string(workers) + " workers");
    Cluster cluster(directory() / (std::to_string(data) + "-" + std::to_string(workers)), spread(job(), data),
                    {workers, 0});
    cluster.expect_success();
    std::int64_t of_workers = 0;
    for (int w = 0; w < workers; ++w) {
      expect_near(losses_of(cluster.steps_file(w)), expected);
      of_workers += dropped_of(cluster.steps_file(w));
    }
    EXPECT_EQ(of_workers, dropped);
    ASSERT_TRUE(result_of(cluster.worker(0)).quality);
    EXPECT_NEAR(*result_of(cluster.worker(0)).quality, *result_of(alone.worker(0)).quality, 1e-3);
    EXPECT_THAT(cluster.worker(0).err(), HasSubstr("experts: "));
  }
}

TEST_F(ExpertsTest, UnderLaunch) {
  const auto launched =
      run("launch", {"launch", "--workers", "2", "--", "train", "--job", job().file, "--set",
                     "strategy.kind=EXPERTS", "--set", "streams.policy=AUTO", "--set", "streams.count=4"});
  EXPECT_EQ(launched->exit_code(), 0) << launched->err();
  EXPECT_THAT(launched->out(), HasSubstr("result: "));
}

TEST_F(ExpertsTest, OverMpi) {
  if (mpirun_is_missing()) GTEST_SKIP() << missing::kMpirun;
  const std::vector<float> expected = train("alone", job({"evaluation.enabled=false"}));
  const Job of_mpi = spread(
      job({"evaluation.enabled=false", "strategy.backend=MPI", "metrics.steps_file=" + path("%r.steps")}), 2);
  Process mpirun(under_mpirun(4, of_mpi.arguments()), {}, directory() / "mpirun");
  EXPECT_EQ(mpirun.exit_code(), 0) << mpirun.err();
  for (const char* rank : {"worker-0.steps", "worker-1.steps", "worker-2.steps", "worker-3.steps"})
    expect_near(losses_of(path(rank)), expected);
}

/// Between meshes, one process and other strategies.
TEST_F(ExpertsTest, CheckpointsAreThoseOfAllStrategies) {
  const Job plain = job({"evaluation.enabled=false"});
  const auto saved = [&](const Job& of, const std::string& name, int steps) {
    return of.with(checkpoints_in(directory() / name, 10)).with({"steps=" + std::to_string(steps)});
  };
  Cluster whole(directory() / "whole", saved(spread(plain), "whole-ckpt", 20), {4, 0});
  whole.expect_success();
  const Values expected = values_of_newest(directory() / "whole-ckpt");
  Cluster(directory() / "first", saved(spread(plain), "ckpt", 10), {4, 0}).expect_success();
  const auto resumed = [&](const Job& of, const std::string& name, Cluster::Shape shape) {
    std::filesystem::copy(directory() / "ckpt", directory() / (name + "-ckpt"),
                          std::filesystem::copy_options::recursive);
    Cluster cluster(directory() / name, saved(of, name + "-ckpt", 20), shape, {"--resume"});
    cluster.expect_success();
    return values_of_newest(directory() / (name + "-ckpt"));
  };
  EXPECT_EQ(resumed(spread(plain), "same", {4, 0}), expected);
  const auto names = [](const Values& values) {
    std::vector<std::string> all;
    for (const auto& each : values) all.push_back(each.first);
    return all;
  };
  EXPECT_EQ(names(resumed(plain, "one", {1, 0})), names(expected));
  EXPECT_EQ(names(resumed(spread(plain, 2), "two", {2, 0})), names(expected));
  resumed(plain.with({"strategy.kind=ALLREDUCE"}), "all", {2, 0});
  const auto diff = run("diff", {"ckpt", "diff", (directory() / "whole-ckpt").string(),
                                 (directory() / "one-ckpt").string(), "--tolerance", "1e-5"});
  EXPECT_EQ(diff->exit_code(), 0) << diff->out() << diff->err();
}

class ExpertsFaultTest : public ExpertsTest {};

TEST_F(ExpertsFaultTest, ALostWorkerIsNamed) {
  for (const int data : {1, 2}) {
    const Job endless =
        spread(job({"evaluation.enabled=false", "steps=1000000", "strategy.deadline_seconds=5"}), data);
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

TEST_F(ExpertsTest, APlanShowsWhereExpertsLie) {
  const auto planned = run("plan", {"graph", "plan", "--job", job().file, "--workers", "4", "--set",
                                    "strategy.kind=EXPERTS", "--set", "strategy.mesh.data=2"});
  EXPECT_EQ(planned->exit_code(), 0) << planned->err();
  EXPECT_THAT(planned->out(),
              AllOf(HasSubstr("experts: 2 groups of 2 workers"), HasSubstr("[4, 8, 16] -> [2, 8, 16]"),
                    HasSubstr("layer0/experts/route: 4 experts"), HasSubstr("all-to-alls"),
                    HasSubstr("between groups")));
}

TEST_F(ExpertsTest, AMeshOfOtherWorkersIsRefusedBeforeAnythingBegins) {
  const auto refused = run("refused", {"launch", "--workers", "3", "--", "train", "--job", job().file,
                                       "--set", "strategy.kind=EXPERTS", "--set", "strategy.mesh.experts=2"});
  EXPECT_EQ(refused->exit_code(), 2);
  EXPECT_THAT(refused->err(), HasSubstr("strategy.mesh { experts: 2 } is not of 3 workers"));
}

}  // namespace
}  // namespace braid::integration
