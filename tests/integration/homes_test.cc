// Several workers that are each the home of a part of servers' rows (PS_ALLREDUCE with
// strategy.ps.cache_rows), as processes over TCP: losses and checkpoints of HYBRID whose tables are spread by
// rows, evaluations, restarts.
#include <gmock/gmock.h>
#include <signal.h>

#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

/// 10,007 rows of 8 numbers; a batch of two workers names at most 160 of them.
constexpr const char* kHomesJob = R"(
name: "homes" seed: 5 steps: 400
model { name: "din" hidden: 8 embedding_dim: 8 sparse_tables: true }
input {
  format: GENERATOR generator { rows: 4000 test_rows: 128 } global_batch_size: 16
  columns { name: "age" kind: NUMERIC }
  columns { name: "city" kind: CATEGORICAL buckets: 7 }
  columns { name: "shop" kind: CATEGORICAL buckets: 5000 length: 3 }
  columns { name: "item" kind: CATEGORICAL buckets: 5000 output: "item" }
  columns { name: "history" kind: CATEGORICAL buckets: 5000 length: 5 output: "history" }
  columns { name: "clicked" kind: LABEL }
}
optimizer { kind: ADAM learning_rate: 0.01 }
evaluation { enabled: false }
streams { count: 1 policy: NONE }
runtime { intra_op_threads: 1 device: CPU }
)";

class HomesJobTest : public IntegrationTest {
 protected:
  Job job(Strings more = {}) const { return {write("job.pbtxt", kHomesJob), "", std::move(more)}; }
  Job homes(int rows, Strings more = {}) const {
    return job(std::move(more))
        .with({"strategy.kind=PS_ALLREDUCE", "strategy.ps.cache_rows=" + std::to_string(rows)});
  }
  Job hybrid(Strings more = {}) const {
    return job(std::move(more))
        .with({"strategy.kind=HYBRID", "strategy.hybrid=ids: DISTINCT table { match: '.*' plan: ROW }"});
  }
  /// The losses, the same on all workers.
  std::vector<float> losses(const std::string& name, const Job& job, Cluster::Shape shape) const {
    Cluster cluster(directory() / name, job, shape);
    cluster.expect_success();
    std::vector<float> leaders = losses_of(cluster.steps_file(0));
    for (int w = 1; w < shape.workers; ++w)
      EXPECT_EQ(losses_of(cluster.steps_file(w)), leaders) << "worker " << w;
    return leaders;
  }
  void expect_same(const Path& its, const Path& expected, const std::string& name) {
    const auto diff = run("diff-" + name, {"ckpt", "diff", its.string(), expected.string()});
    EXPECT_EQ(diff->exit_code(), 0) << name << diff->out();
    EXPECT_THAT(diff->out(), HasSubstr(" 0 different")) << name;
  }
};

TEST_F(HomesJobTest, LossesAreThoseOfHybridAndCheckpointsThoseOfServersWhateverHasRoom) {
  for (const int workers : {2, 3}) {
    const std::string of = std::to_string(workers);
    const std::vector<float> expected = losses("hybrid" + of, hybrid(), {workers, 0});
    const Path plain = directory() / ("plain" + of);
    losses("servers" + of, job(checkpoints_in(plain, 150)).with({"strategy.kind=PS_ALLREDUCE"}),
           {workers, 2});
    for (const int rows : {240, 1000, 10007}) {
      const std::string name = of + " workers " + std::to_string(rows);
      const Path root = directory() / (name + " checkpoints");
      const Job kept = homes(rows, checkpoints_in(root, 150)).with({"runtime.steps_in_flight=3"});
      Cluster cluster(directory() / name, kept, {workers, 2});
      cluster.expect_success();
      for (int w = 0; w < workers; ++w) {
        EXPECT_EQ(losses_of(cluster.steps_file(w)), expected) << name;
        EXPECT_THAT(cluster.worker(w).out(), ContainsRegex("row cache: [0-9]+ rows asked for.* their home"));
      }
      expect_same(root, plain, name);
    }
  }
}

TEST_F(HomesJobTest, AnEvaluationSeesTheRowsOfAllWorkers) {
  const Strings evaluated{"evaluation.enabled=true", "evaluation.every_steps=70", "steps=200"};
  const auto quality = [&](const std::string& name, const Job& job, Cluster::Shape shape) {
    Cluster cluster(directory() / name, job, shape);
    cluster.expect_success();
    return result_of(cluster.worker(0)).quality.value_or(-1);
  };
  const double expected = quality("hybrid", hybrid(evaluated), {2, 0});
  EXPECT_GT(expected, 0);
  EXPECT_EQ(quality("homes", homes(300, evaluated), {2, 2}), expected);
}

TEST_F(HomesJobTest, AskedToStopAllSaveTheSameStepAndGoOnFromThere) {
  for (const bool server : {false, true}) {
    const std::string of = server ? "server" : "worker";
    const Path root = directory() / ("checkpoints-" + of);
    const Job longer =
        homes(300, {"metrics.progress_seconds=0.05"}).with(checkpoints_in(root, 0)).with({"steps=1000000"});
    Cluster cluster(directory() / of, longer, {2, 1});
    EXPECT_TRUE(cluster.worker(0).says("step 50")) << cluster.worker(0).err();
    (server ? cluster.server(0) : cluster.worker(1)).signal(SIGTERM);
    EXPECT_EQ(cluster.exit_codes(), (std::vector<int>{143, 143, 143})) << cluster.worker(0).err();
    const auto last = result_of(cluster.worker(0)).last_step;
    EXPECT_EQ(result_of(cluster.worker(1)).last_step, last);
    EXPECT_EQ(checkpointed_steps(root), std::vector<std::uint64_t>{last});
    Cluster rest(directory() / ("rest-" + of), longer.with({"steps=" + std::to_string(last + 3)}), {2, 1},
                 {"--resume"});
    rest.expect_success();
  }
}

class HomesJobFaultTest : public HomesJobTest {};

/// Killed behind a checkpoint, it ends as a run that was not.
TEST_F(HomesJobFaultTest, AKilledWorkerIsNamedAndTheJobGoesOnFromItsCheckpoint) {
  const Path whole = directory() / "whole";
  losses("whole-run", homes(300, checkpoints_in(whole, 150)).with({"steps=1000"}), {2, 2});
  const Path root = directory() / "checkpoints";
  const Job kept = homes(300, checkpoints_in(root, 150)).with({"steps=1000"});
  Cluster cluster(directory() / "killed", kept, {2, 2});
  EXPECT_TRUE(cluster.worker(0).says("checkpoint of step 300")) << cluster.worker(0).err();
  cluster.worker(1).signal(SIGKILL);
  EXPECT_EQ(cluster.worker(0).exit_code(), 138);
  EXPECT_THAT(cluster.worker(0).err(), ContainsRegex("rank 1|worker 1"));
  cluster.start_again(0, {"--resume"});
  cluster.start_again(1, {"--resume"});
  EXPECT_EQ(cluster.exit_codes(), (std::vector<int>{0, 0, 0, 0}));
  expect_same(root, whole, "killed");
}

TEST_F(HomesJobTest, StreamsAreMeasuredWithoutTheServers) {
  Cluster cluster(
      directory() / "job",
      homes(300, {"steps=20", "streams.policy=AUTO", "streams.count=2", "streams.measure_seconds=0.1"}),
      {2, 1});
  cluster.expect_success();
  EXPECT_THAT(cluster.worker(0).err(), HasSubstr("AUTO took"));
}

}  // namespace
}  // namespace braid::integration
