// A task that is killed, or stopped without a word: the others end with 138 before the deadline and 10
// seconds are over, and say who is missing; where the mode allows it they go on.
#include <gmock/gmock.h>
#include <signal.h>

#include <cstdlib>
#include <thread>

#include "tests/integration/exit_codes.h"
#include "tests/integration/run.h"
#include "tests/support/in_some_attempt.h"
#include "tests/support/missing.h"

namespace braid::integration {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kDeadline = 3s;
constexpr auto kSlack = 10s;

class FaultTest : public IntegrationTest {
 protected:
  /// A job that would take much longer than the test.
  static Job long_job(const std::string& strategy, const std::string& more = "strategy.consistency=BSP") {
    return wide_deep().with({"steps=1000000", "input.global_batch_size=96", "strategy.kind=" + strategy, more,
                             "strategy.deadline_seconds=3", "strategy.start_deadline_seconds=60",
                             "metrics.progress_seconds=0.05"});
  }
  /// Waits until worker 0 has made a few steps, which needs all others: its first one may not.
  static bool makes_steps(Cluster& cluster) { return reaches_step(cluster.worker(0), 4); }
  /// Expects that `process` ends in time, as one that lost a peer, and names it.
  template <class Matcher>
  static void expect_names(Process& process, Clock::time_point since, Matcher who,
                           std::chrono::seconds deadline = kDeadline) {
    const auto limit =
        std::chrono::duration_cast<std::chrono::milliseconds>(since + deadline + kSlack - Clock::now());
    EXPECT_EQ(process.exit_code(limit), kPeerLost);
    EXPECT_THAT(process.err(), who);
  }
};

/// SIGKILL closes sockets, SIGSTOP leaves them open and silent. All is tried again where a healthy task may
/// have missed the deadline too.
class LostTaskFaultTest : public FaultTest, public ::testing::WithParamInterface<int> {};

TEST_P(LostTaskFaultTest, AWorkerIsMissedByTheOthersOfItsRound) {
  in_some_attempt([&] {
    Cluster cluster(directory() / "job", long_job("PS"), {2, 1});
    ASSERT_TRUE(makes_steps(cluster)) << cluster.worker(0).err();
    cluster.worker(1).signal(GetParam());
    expect_names(cluster.worker(0), Clock::now(), HasSubstr("worker 1 ("));
  });
}

TEST_P(LostTaskFaultTest, TheLeaderIsMissedToo) {
  in_some_attempt([&] {
    Cluster cluster(directory() / "job", long_job("PS"), {2, 1});
    ASSERT_TRUE(makes_steps(cluster)) << cluster.worker(0).err();
    cluster.worker(0).signal(GetParam());
    expect_names(cluster.worker(1), Clock::now(), HasSubstr("worker 0 ("));
  });
}

TEST_P(LostTaskFaultTest, AServerIsMissedByAllWorkers) {
  in_some_attempt([&] {
    Cluster cluster(directory() / "job", long_job("PS"), {2, 2});
    ASSERT_TRUE(makes_steps(cluster)) << cluster.worker(0).err();
    cluster.server(1).signal(GetParam());
    const auto since = Clock::now();
    for (int worker : {0, 1})
      expect_names(cluster.worker(worker), since, HasSubstr("server 1 (" + cluster.server_address(1)));
  });
}

TEST_P(LostTaskFaultTest, AWorkerIsNotMissedByAsynchronousOnes) {
  const Job job = long_job("PS", "strategy.consistency=ASP").with({"steps=3000"});
  in_some_attempt([&] {
    Cluster cluster(directory() / "job", job, {2, 1});
    ASSERT_TRUE(cluster.worker(0).says("step 1/3000")) << cluster.worker(0).err();
    cluster.worker(1).signal(GetParam());
    ASSERT_EQ(cluster.worker(0).exit_code(), 0) << cluster.worker(0).err();
    EXPECT_EQ(result_of(cluster.worker(0)).last_step, 3000U);
    EXPECT_EQ(cluster.server(0).exit_code(kDeadline + kSlack), 0) << "nobody is left to serve";
  });
}

TEST_P(LostTaskFaultTest, ARankIsMissedInTheRing) {
  in_some_attempt([&] {
    Cluster cluster(directory() / "job", long_job("ALLREDUCE"), {3, 0});
    ASSERT_TRUE(makes_steps(cluster)) << cluster.worker(0).err();
    cluster.worker(1).signal(GetParam());
    const auto since = Clock::now();
    for (int worker : {0, 2}) expect_names(cluster.worker(worker), since, HasSubstr("rank 1 ("));
  });
}

INSTANTIATE_TEST_SUITE_P(All, LostTaskFaultTest, ::testing::Values(SIGKILL, SIGSTOP),
                         [](const auto& info) { return info.param == SIGKILL ? "Killed" : "Stopped"; });

TEST_F(FaultTest, AStoppedRankIsMissedUnderMpi) {
  if (mpirun_is_missing()) GTEST_SKIP() << missing::kMpirun;
  const Job job = long_job("ALLREDUCE", "strategy.backend=MPI");
  in_some_attempt([&] {
    Process mpirun(under_mpirun(2, job.arguments()), {}, directory() / "mpirun");
    ASSERT_TRUE(mpirun.says("step 1/1000000")) << mpirun.err();
    const pid_t rank = child_with(mpirun.pid(), "OMPI_COMM_WORLD_RANK=1");
    ASSERT_GT(rank, 0);
    ::kill(rank, SIGSTOP);
    EXPECT_TRUE(mpirun.says("did not take part before the deadline", kDeadline + kSlack)) << mpirun.err();
    EXPECT_THAT(mpirun.err(), ContainsRegex("rank 1 \\([^)]*\\) did not take part"));
    ::kill(rank, SIGKILL);
    EXPECT_NE(mpirun.exit_code(kSlack), 0);
  });
}

constexpr auto kStartDeadline = 4s;

TEST_F(FaultTest, TasksThatNeverStartAreNamed) {
  const Job job = long_job("PS").with({"strategy.start_deadline_seconds=4"});
  in_some_attempt([&] {
    Cluster cluster(directory() / "job", job, {2, 2});
    cluster.server(1).signal(SIGKILL);
    const auto since = Clock::now();
    for (int worker : {0, 1})
      expect_names(cluster.worker(worker), since, HasSubstr("server 1 (" + cluster.server_address(1)),
                   kStartDeadline);
  });
}

TEST_F(FaultTest, ARankThatNeverStartsIsNamed) {
  const Job job = long_job("ALLREDUCE").with({"strategy.start_deadline_seconds=4"});
  in_some_attempt([&] {
    Cluster cluster(directory() / "job", job, {3, 0});
    cluster.worker(2).signal(SIGKILL);
    const auto since = Clock::now();
    expect_names(cluster.worker(0), since, HasSubstr("rank 2"), kStartDeadline);
    // The leader hosts the rendezvous and may give up first: then it is the one whom this rank misses.
    expect_names(cluster.worker(1), since, AnyOf(HasSubstr("rank 2"), HasSubstr("rendezvous")),
                 kStartDeadline);
  });
}

}  // namespace
}  // namespace braid::integration
