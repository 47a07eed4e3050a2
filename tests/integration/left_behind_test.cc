// No process of a job stays behind when others are lost, and each says what is to be started again.
#include <gmock/gmock.h>
#include <signal.h>

#include <thread>

#include "tests/integration/exit_codes.h"
#include "tests/integration/run.h"
#include "tests/support/in_some_attempt.h"

namespace braid::integration {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kEndSlack = 20s;

class LeftBehindFaultTest : public IntegrationTest {
 protected:
  static Job long_job(const std::vector<std::string>& more = {}) {
    return linear_regression()
        .with({"steps=100000000", "optimizer.learning_rate=1e-5", "strategy.kind=PS",
               "strategy.deadline_seconds=4", "strategy.start_deadline_seconds=60",
               "metrics.progress_seconds=0.05"})
        .with(more);
  }
  static bool makes_steps(Cluster& cluster) { return cluster.worker(0).says("examples/s"); }
};

TEST_F(LeftBehindFaultTest, AServerOfAJobThatLostAnotherOneEnds) {
  in_some_attempt([&] {
    Cluster cluster(directory() / "job", long_job({"strategy.bucket_bytes=1"}), {2, 2});
    ASSERT_TRUE(makes_steps(cluster)) << cluster.worker(0).err();
    cluster.server(1).signal(SIGKILL);
    for (const int worker : {0, 1}) {
      EXPECT_EQ(cluster.worker(worker).exit_code(4s + kEndSlack), kPeerLost);
      EXPECT_THAT(cluster.worker(worker).err(), AnyOf(HasSubstr("start all workers and all servers again"),
                                                      HasSubstr("the job has lost server 1")));
    }
    EXPECT_EQ(cluster.server(0).exit_code(kEndSlack), kPeerLost) << cluster.server(0).err();
    EXPECT_THAT(cluster.server(0).err(), HasSubstr("start all its workers and servers again with --resume"));
  });
}

TEST_F(LeftBehindFaultTest, AServerThatOnlyWorkersWithoutAWordLeftEnds) {
  Cluster cluster(directory() / "job", long_job({"strategy.server_idle_seconds=2"}), {2, 1});
  ASSERT_TRUE(makes_steps(cluster)) << cluster.worker(0).err();
  for (const int worker : {0, 1}) cluster.worker(worker).signal(SIGKILL);
  EXPECT_EQ(cluster.server(0).exit_code(2s + kEndSlack), kPeerLost) << cluster.server(0).err();
  EXPECT_THAT(cluster.server(0).err(), HasSubstr("no worker for 2 s (strategy.server_idle_seconds)"));
}

TEST_F(LeftBehindFaultTest, AnAsynchronousJobWhoseLeaderIsLostLeavesNoServer) {
  Cluster cluster(directory() / "job",
                  long_job({"strategy.consistency=ASP", "strategy.server_idle_seconds=2"}), {2, 1});
  ASSERT_TRUE(makes_steps(cluster)) << cluster.worker(0).err();
  cluster.worker(0).signal(SIGKILL);
  std::this_thread::sleep_for(500ms);
  EXPECT_EQ(cluster.worker(1).wait(0ms), std::nullopt) << "it goes on: " << cluster.worker(1).err();
  cluster.worker(1).signal(SIGTERM);
  EXPECT_EQ(cluster.worker(1).exit_code(kEndSlack), kTerminated) << cluster.worker(1).err();
  EXPECT_EQ(cluster.server(0).exit_code(2s + kEndSlack), kPeerLost) << cluster.server(0).err();
}

TEST_F(LeftBehindFaultTest, ALeaderThatNeverComesIsNamedBySynchronousAndOtherWorkers) {
  for (const char* consistency : {"BSP", "ASP"}) {
    in_some_attempt([&] {
      Cluster cluster(
          directory() / consistency,
          long_job({std::string("strategy.consistency=") + consistency, "strategy.start_deadline_seconds=5"}),
          {2, 1});
      cluster.worker(0).signal(SIGKILL);
      EXPECT_EQ(cluster.worker(1).exit_code(5s + kEndSlack), kPeerLost) << cluster.worker(1).err();
      EXPECT_THAT(cluster.worker(1).err(), HasSubstr("it is for worker 0 to do"));
    });
  }
}

TEST_F(LeftBehindFaultTest, ALeaderThatIsAskedToStopBeforeItsFirstStepStopsAll) {
  // Whether the leader has its place already shows nowhere: the longer the data takes, the surer.
  const Job job = mmoe().with({"steps=1000000", "strategy.kind=PS", "strategy.deadline_seconds=30",
                               "strategy.start_deadline_seconds=60", "input.generator.rows=400000"});
  in_some_attempt([&] {
    Cluster cluster(directory() / "job", job, {2, 1});
    ASSERT_TRUE(cluster.worker(0).says("rank 0 of")) << cluster.worker(0).err();
    std::this_thread::sleep_for(700ms);
    cluster.worker(0).signal(SIGTERM);
    const auto since = Clock::now();
    EXPECT_EQ(cluster.worker(0).exit_code(kEndSlack), kTerminated) << cluster.worker(0).err();
    EXPECT_EQ(cluster.worker(1).exit_code(kEndSlack), kTerminated) << cluster.worker(1).err();
    EXPECT_EQ(cluster.server(0).exit_code(kEndSlack), kTerminated) << cluster.server(0).err();
    EXPECT_LT(Clock::now() - since, 30s) << "before any deadline";
  });
}

TEST_F(LeftBehindFaultTest, AServerThatIsAskedToStopBeforeTheFirstStepStopsAll) {
  const Job job = mmoe().with({"steps=1000000", "strategy.kind=PS", "strategy.deadline_seconds=30",
                               "strategy.start_deadline_seconds=60", "input.generator.rows=400000"});
  in_some_attempt([&] {
    Cluster cluster(directory() / "job", job, {2, 2});
    for (const int worker : {0, 1})
      ASSERT_TRUE(cluster.worker(worker).says("of 2; cluster")) << cluster.worker(worker).err();
    std::this_thread::sleep_for(500ms);
    cluster.server(1).signal(SIGTERM);
    const auto since = Clock::now();
    EXPECT_THAT(cluster.exit_codes(kEndSlack), ::testing::Each(kTerminated)) << cluster.worker(0).err();
    EXPECT_LT(Clock::now() - since, 30s) << "before any deadline";
    EXPECT_THAT(cluster.worker(0).err(),
                HasSubstr("was asked to stop before the job had its initial values"));
  });
}

}  // namespace
}  // namespace braid::integration
