// Elastic jobs whose tables are spread over the workers: each world has other parts of them. Who comes and
// who goes in order costs no step; rows that are lost with a worker are those of the newest checkpoint.
#include <signal.h>

#include <map>
#include <thread>

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

class ElasticHybridFaultTest : public ElasticFaultTest {
 protected:
  static constexpr std::uint64_t kSteps = 1500;

  /// Plans of tables that no number of workers changes: rows of some, with hot ones, and others whole on one.
  Job plain(std::uint64_t steps = kSteps) const override {
    return ElasticFaultTest::plain(steps).with(
        {"strategy.kind=HYBRID", "model.sparse_tables=true",
         "strategy.hybrid.table={match: 'deep/occupation/.*' plan: ROW hot_rows: 3}",
         "strategy.hybrid.table={match: 'deep/.*' plan: ROW}",
         "strategy.hybrid.table={match: 'wide/.*' plan: TABLE}", "checkpoint.every_steps=100",
         "checkpoint.directory=" + path("checkpoints")});
  }
  Job elastic(int least = 1, std::uint64_t steps = kSteps) const {
    return ElasticFaultTest::elastic(least, steps);
  }
  /// By step, those that were made last.
  static std::vector<float> last_losses_of(const Path& file) {
    std::map<std::uint64_t, float> by_step;
    for (const LoggedStep& step : read_steps(file)) by_step[step.step] = step.loss;
    std::vector<float> losses;
    for (const auto& [step, loss] : by_step) {
      EXPECT_EQ(step, losses.size());
      losses.push_back(loss);
    }
    return losses;
  }
};

TEST_F(ElasticHybridFaultTest, AWorkerJoinsBetweenTwoStepsAndTakesRows) {
  const Job job = elastic();
  Cluster cluster(directory() / "job", job, {2, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 150)) << cluster.worker(0).err();
  EXPECT_THAT(cluster.worker(0).err(),
              AllOf(HasSubstr("] ROW"), HasSubstr("] TABLE"), Not(HasSubstr("REPLICATE"))));
  const auto third = join(cluster, job, "third", 2);
  const std::uint64_t from = first_step(cluster.worker(0), 2);
  EXPECT_EQ(third->exit_code(), 0) << third->err();
  cluster.expect_success();
  EXPECT_THAT(third->err(), HasSubstr("resumed at step " + std::to_string(from)));
  EXPECT_THAT(cluster.worker(1).err(), Not(HasSubstr("has lost"))) << "nobody's step has failed";
  expect_losses(losses_of(cluster.steps_file(0)), fixed({2, 3}, {from, kSteps}));
}

TEST_F(ElasticHybridFaultTest, AWorkerThatIsAskedToStopLeavesItsRowsBehind) {
  Cluster cluster(directory() / "job", elastic(), {3, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 150)) << cluster.worker(0).err();
  cluster.worker(2).signal(SIGTERM);
  EXPECT_EQ(cluster.worker(2).exit_code(30s), kTerminated) << cluster.worker(2).err();
  EXPECT_THAT(cluster.worker(2).err(), HasSubstr("the others go on"));
  const std::uint64_t from = first_step(cluster.worker(0), 2);
  for (const int worker : {0, 1})
    EXPECT_EQ(cluster.worker(worker).exit_code(), 0) << cluster.worker(worker).err();
  expect_losses(losses_of(cluster.steps_file(0)), fixed({3, 2}, {from, kSteps}));
}

TEST_F(ElasticHybridFaultTest, RowsOfAKilledWorkerAreThoseOfTheCheckpoint) {
  Cluster cluster(directory() / "job", elastic(), {3, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 250)) << cluster.worker(0).err();
  cluster.worker(1).signal(SIGKILL);
  const std::uint64_t from = first_step(cluster.worker(0), 2);
  EXPECT_GE(from, 200U);
  EXPECT_EQ(from % 100, 0U);
  for (const int worker : {0, 2})
    EXPECT_EQ(cluster.worker(worker).exit_code(), 0) << cluster.worker(worker).err();
  EXPECT_EQ(result_of(cluster.worker(0)).last_step, kSteps);
  expect_losses(last_losses_of(cluster.steps_file(0)), fixed({3, 2}, {from, kSteps}));
}

TEST_F(ElasticHybridFaultTest, TheLeaderGoesOnAloneAndTakesInOthersAgain) {
  const Job job = endless();
  Cluster cluster(directory() / "job", job, {3, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 150)) << cluster.worker(0).err();
  for (const int worker : {1, 2}) cluster.worker(worker).signal(SIGKILL);
  ASSERT_TRUE(cluster.worker(0).says("rank 0 of 1 workers")) << cluster.worker(0).err();
  const auto second = join(cluster, job, "second", 1);
  ASSERT_TRUE(second->says("rank 1 of 2 workers")) << second->err();
  ASSERT_TRUE(second->says("begins at step")) << second->err();
  const std::uint64_t from = first_step(*second, 3);
  ASSERT_TRUE(reaches_step(cluster.worker(0), from + 50)) << cluster.worker(0).err();
  cluster.worker(0).signal(SIGTERM);
  EXPECT_EQ(cluster.worker(0).exit_code(30s), kTerminated) << cluster.worker(0).err();
  EXPECT_EQ(second->exit_code(30s), kTerminated) << second->err();
  EXPECT_EQ(checkpointed_steps(path("checkpoints")).back(), result_of(cluster.worker(0)).last_step);
}

TEST_F(ElasticHybridFaultTest, AStoppedWorkerIsLeftBehindAndComesAgain) {
  Cluster cluster(directory() / "job", endless().with({"strategy.deadline_seconds=3"}), {3, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 150)) << cluster.worker(0).err();
  cluster.worker(1).signal(SIGSTOP);
  ASSERT_TRUE(cluster.worker(0).says("world 2: rank 0 of 2 workers")) << cluster.worker(0).err();
  const std::uint64_t from = first_step(cluster.worker(0), 2);
  ASSERT_TRUE(reaches_step(cluster.worker(0), from + 150)) << cluster.worker(0).err();
  cluster.worker(1).signal(SIGCONT);
  ASSERT_TRUE(cluster.worker(0).says("world 3: rank 0 of 3 workers")) << cluster.worker(0).err();
  const std::uint64_t third = first_step(cluster.worker(1), 3);
  EXPECT_GT(third, from);
  ASSERT_TRUE(reaches_step(cluster.worker(0), third + 100)) << cluster.worker(0).err();
  cluster.worker(0).signal(SIGTERM);
  EXPECT_THAT(cluster.exit_codes(), ElementsAre(kTerminated, kTerminated, kTerminated));
}

/// Steps are short, so that it is often while the workers write a checkpoint, or while the next world forms.
TEST_F(ElasticHybridFaultTest, OneThatIsKilledAtAnyPointHoldsNobodyUp) {
  for (const auto delay : {0ms, 3ms, 10ms, 30ms}) {
    const Path own = directory() / ("job-" + std::to_string(delay.count()));
    const Job job = elastic(1, 600).with(
        {"checkpoint.every_steps=2", "checkpoint.directory=" + (own / "checkpoints").string()});
    Cluster cluster(own, job, {4, 0});
    ASSERT_TRUE(reaches_step(cluster.worker(0), 40)) << cluster.worker(0).err();
    cluster.worker(1).signal(SIGKILL);
    std::this_thread::sleep_for(delay);
    cluster.worker(2).signal(delay == 3ms ? SIGTERM : SIGKILL);
    for (const int worker : {0, 3})
      ASSERT_EQ(cluster.worker(worker).exit_code(), 0) << cluster.worker(worker).err();
    EXPECT_EQ(last_losses_of(cluster.steps_file(0)).size(), 600U);
  }
}

TEST_F(ElasticHybridFaultTest, WithoutACheckpointTheJobEnds) {
  const Job job = endless().with({"checkpoint.every_steps=1000000"});
  Cluster cluster(directory() / "job", job, {3, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 50)) << cluster.worker(0).err();
  cluster.worker(1).signal(SIGKILL);
  for (const int worker : {0, 2}) EXPECT_EQ(cluster.worker(worker).exit_code(30s), kPeerLost);
  EXPECT_THAT(cluster.worker(0).err(),
              AllOf(HasSubstr("a worker was lost with its rows"), HasSubstr("set checkpoint.every_steps")));
}

TEST_F(ElasticHybridFaultTest, AWorkerWithAnotherDirectoryIsRefusedAndHarmsNobody) {
  const Job job = elastic();
  Cluster cluster(directory() / "job", job, {2, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 50)) << cluster.worker(0).err();
  const auto other = join(cluster, job.with({"checkpoint.directory=" + path("elsewhere")}), "other", 2);
  EXPECT_EQ(other->exit_code(30s), 2);
  cluster.expect_success();
  EXPECT_THAT(cluster.worker(0).err(), Not(HasSubstr("world 2")));
}

}  // namespace
}  // namespace braid::integration
