// Variables that are spread over workers (strategy.shard PARAMETERS): whole jobs as processes over TCP.
// Evaluations, checkpoints that all strategies share, a lost worker.
#include <gmock/gmock.h>
#include <signal.h>

#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using ::testing::HasSubstr;

constexpr const char* kJob = R"(
name: "sharded" seed: 3 steps: 20
model { name: "transformer" hidden: 16 hidden: 16 embedding_dim: 8 classes: 3 }
input {
  format: GENERATOR generator { rows: 600 test_rows: 128 } global_batch_size: 48
  columns { name: "words" kind: CATEGORICAL buckets: 40 length: 4 output: "tokens" }
  columns { name: "topic" kind: CLASS buckets: 3 }
}
optimizer { kind: MOMENTUM learning_rate: 0.02 }
evaluation { every_steps: 5 }
runtime { intra_op_threads: 1 device: CPU }
strategy { deadline_seconds: 5 }
)";

class ShardedVariablesTest : public IntegrationTest {
 protected:
  Job job(std::vector<std::string> more = {}) const {
    return {write("job.pbtxt", kJob), "", std::move(more)};
  }
  static Job sharded(const Job& job) {
    return job.with({"strategy.kind=ALLREDUCE", "strategy.shard=PARAMETERS", "strategy.shard_min_elements=32",
                     "strategy.bucket_bytes=1000"});
  }
  static void expect_near(const std::vector<float>& losses, const std::vector<float>& expected,
                          std::size_t first = 0) {
    ASSERT_EQ(losses.size() + first, expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[first + i], 1e-6 * std::max(1.0F, expected[first + i])) << i;
  }
};

TEST_F(ShardedVariablesTest, LossesAndEvaluationsAreThoseOfOneProcess) {
  Cluster alone(directory() / "alone", job(), {1, 0});
  alone.expect_success();
  Cluster cluster(directory() / "spread", sharded(job()), {3, 0});
  cluster.expect_success();
  for (int w = 0; w < 3; ++w) expect_near(losses_of(cluster.steps_file(w)), losses_of(alone.steps_file(0)));
  ASSERT_TRUE(result_of(alone.worker(0)).quality);
  EXPECT_NEAR(*result_of(cluster.worker(0)).quality, *result_of(alone.worker(0)).quality, 1e-3);
  EXPECT_THAT(cluster.worker(0).err(), HasSubstr(" variables over 3 workers: "));
}

TEST_F(ShardedVariablesTest, CheckpointsGoBetweenNumbersOfWorkersAndStrategies) {
  const Job plain = job({"evaluation.enabled=false"});
  const auto saved = [&](const Job& of, int steps) {
    return of.with(checkpoints_in(directory() / "ckpt", 10)).with({"steps=" + std::to_string(steps)});
  };
  const std::vector<float> whole = train("whole", plain.with({"steps=40"}));
  Cluster(directory() / "three", saved(sharded(plain), 10), {3, 0}).expect_success();
  Cluster(directory() / "one", saved(plain, 20), {1, 0}, {"--resume"}).expect_success();
  Cluster(directory() / "cut", saved(plain.with({"strategy.kind=TENSOR", "strategy.tensor.min_width=1"}), 30),
          {2, 0}, {"--resume"})
      .expect_success();
  Cluster last(directory() / "last", saved(sharded(plain), 40), {2, 0}, {"--resume"});
  last.expect_success();
  expect_near(losses_of(last.steps_file(0), 30), whole, 30);
}

class ShardedVariablesFaultTest : public ShardedVariablesTest {};

TEST_F(ShardedVariablesFaultTest, ALostWorkerIsNamed) {
  const Job endless = sharded(job({"evaluation.enabled=false", "steps=1000000"}));
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

}  // namespace
}  // namespace braid::integration
