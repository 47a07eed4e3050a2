// SIGTERM in every phase of a job: while it waits for peers, in an evaluation, to a server, to all at once.
// Whoever is asked saves what was learned since the last checkpoint and ends with 143. And workers that are
// started again in the place of lost ones, with the servers as they were.
#include <gmock/gmock.h>
#include <signal.h>

#include <thread>

#include "launch/signal_pipe.h"
#include "tests/integration/checkpoints.h"
#include "tests/integration/exit_codes.h"
#include "tests/support/eventually.h"

namespace braid::integration {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

class StopFaultTest : public IntegrationTest {
 protected:
  static Job job_of(const std::string& strategy, const std::vector<std::string>& more = {}) {
    return wide_deep()
        .with({"steps=1000000", "strategy.kind=" + strategy, "streams.policy=COST",
               "metrics.progress_seconds=0.05", "strategy.deadline_seconds=30",
               "strategy.start_deadline_seconds=300"})
        .with(more);
  }
  Job saved(const std::string& strategy, const std::vector<std::string>& more = {}) const {
    return job_of(strategy, more).with({"checkpoint.directory=" + path("checkpoints")});
  }
  /// Waits until worker 0 is past its first steps, which needs all others unless the job is asynchronous.
  static void wait_for_steps(Cluster& cluster) {
    ASSERT_TRUE(reaches_step(cluster.worker(0), 4)) << cluster.worker(0).err();
  }
  /// A job of which a worker was killed after its first steps. It is started anew when it had ended before,
  /// as it may when this test is held up.
  std::unique_ptr<Cluster> with_killed_worker(int worker, const Job& job, Cluster::Shape shape,
                                              const std::vector<std::string>& arguments = {}) const {
    for (int trials = 1;; ++trials) {
      std::filesystem::remove_all(path("checkpoints"));
      auto cluster = std::make_unique<Cluster>(directory() / "job", job, shape, arguments);
      wait_for_steps(*cluster);
      cluster->worker(worker).signal(SIGKILL);
      const int code = cluster->worker(worker).exit_code();
      if (code == 0 && trials < 20) continue;
      EXPECT_EQ(code, 128 + SIGKILL);
      return cluster;
    }
  }
  void expect_saved(Cluster& cluster, int workers) const {
    for (int worker = 0; worker < workers; ++worker)
      EXPECT_EQ(cluster.worker(worker).exit_code(), kTerminated) << cluster.worker(worker).err();
    const std::uint64_t step = result_of(cluster.worker(0)).last_step;
    for (int worker = 1; worker < workers; ++worker)
      EXPECT_EQ(result_of(cluster.worker(worker)).last_step, step) << "all stop after the same step";
    EXPECT_GT(step, 0U);
    EXPECT_THAT(checkpointed_steps(path("checkpoints")), Contains(step));
  }
  static void expect_stops_while_waiting(Process& process) {
    ASSERT_TRUE(process.says("rank 0 of")) << process.err();
    std::this_thread::sleep_for(500ms);
    process.signal(SIGTERM);
    EXPECT_EQ(process.exit_code(30s), kTerminated) << process.err();
    const Result result = result_of(process);
    EXPECT_EQ(result.exit, kTerminated);
    EXPECT_EQ(result.steps, 0U);
    EXPECT_THAT(process.err(), HasSubstr("before the first step"));
  }
};

TEST_F(StopFaultTest, AWorkerThatWaitsForAServerEndsAtOnce) {
  Cluster cluster(directory() / "job", job_of("PS"), {1, 1});
  cluster.server(0).signal(SIGKILL);
  expect_stops_while_waiting(cluster.worker(0));
}

TEST_F(StopFaultTest, AWorkerThatWaitsForAnotherOneEndsAtOnce) {
  Cluster cluster(directory() / "job", job_of("ALLREDUCE"), {2, 0});
  cluster.worker(1).signal(SIGKILL);
  expect_stops_while_waiting(cluster.worker(0));
}

TEST_F(StopFaultTest, AServerWithoutAJobEndsAtOnce) {
  Cluster cluster(directory() / "job", job_of("PS"), {1, 1});
  cluster.worker(0).signal(SIGKILL);
  ASSERT_TRUE(cluster.server(0).says("control on")) << cluster.server(0).err();
  cluster.server(0).signal(SIGTERM);
  EXPECT_EQ(cluster.server(0).exit_code(30s), kTerminated) << cluster.server(0).err();
}

TEST_F(StopFaultTest, AllAskedAtOnceLeaveACheckpoint) {
  Cluster cluster(directory() / "job", saved("PS"), {2, 2});
  wait_for_steps(cluster);
  for (Process* task : {&cluster.server(0), &cluster.server(1), &cluster.worker(0), &cluster.worker(1)})
    task->signal(SIGTERM);
  expect_saved(cluster, 2);
  for (int server : {0, 1}) EXPECT_EQ(cluster.server(server).exit_code(30s), kTerminated);
}

TEST_F(StopFaultTest, ASignalThatIsSentToTheGroupTooIsOneRequest) {
  Cluster cluster(directory() / "job", saved("LOCAL"), {});
  wait_for_steps(cluster);
  for (int i = 0; i < 200 && !cluster.worker(0).wait(10ms); ++i) cluster.worker(0).signal(SIGTERM);
  expect_saved(cluster, 1);
}

TEST_F(StopFaultTest, ATerminalThatIsClosedIsARequestToo) {
  Cluster cluster(directory() / "job", saved("LOCAL"), {});
  wait_for_steps(cluster);
  cluster.worker(0).signal(SIGHUP);
  expect_saved(cluster, 1);
}

TEST_F(StopFaultTest, AReaderThatIsGoneIsARequestToo) {
  std::vector<std::string> command{"bash", "-c", "set -o pipefail; \"$@\" 2>&1 | head -n 3", "bash"};
  for (const std::string& word : braid(saved("LOCAL").arguments())) command.push_back(word);
  Process process(command, {}, directory() / "piped");
  EXPECT_EQ(process.exit_code(), kTerminated) << process.out() << process.err();
  EXPECT_EQ(checkpointed_steps(path("checkpoints")).size(), 1U);
}

TEST_F(StopFaultTest, WhatItWasStartedToIgnoreItIgnores) {
  std::vector<std::string> command{"sh", "-c", "trap '' HUP INT; exec \"$@\"", "sh"};
  for (const std::string& word : braid(saved("LOCAL").arguments())) command.push_back(word);
  Process process(command, {}, directory() / "ignores");
  ASSERT_TRUE(process.says("examples/s")) << process.err();
  for (const int number : {SIGHUP, SIGINT}) process.signal(number);
  EXPECT_EQ(process.wait(1s), std::nullopt) << process.err();
  process.signal(SIGTERM);
  EXPECT_EQ(process.exit_code(), kTerminated) << process.err();
}

TEST_F(StopFaultTest, ASecondCtrlCEndsAtOnce) {
  Cluster cluster(directory() / "job", job_of("ALLREDUCE"), {2, 0});
  wait_for_steps(cluster);
  cluster.worker(1).signal(SIGSTOP);
  cluster.worker(0).signal(SIGINT);
  ASSERT_TRUE(cluster.worker(0).says("signal SIGINT: stopping")) << cluster.worker(0).err();
  std::this_thread::sleep_for(launch::kOneRequest + 100ms);
  cluster.worker(0).signal(SIGINT);
  EXPECT_EQ(cluster.worker(0).exit_code(), 128 + SIGINT) << cluster.worker(0).err();
}

TEST_F(StopFaultTest, AServerAskedAloneStopsTheJobAfterACheckpoint) {
  Cluster cluster(directory() / "job", saved("PS"), {2, 1});
  wait_for_steps(cluster);
  cluster.server(0).signal(SIGTERM);
  expect_saved(cluster, 2);
  EXPECT_EQ(cluster.server(0).exit_code(30s), kTerminated) << cluster.server(0).err();
}

TEST_F(StopFaultTest, EachServerAloneIsHeardWhateverItHolds) {
  for (const int server : {0, 1}) {
    std::filesystem::remove_all(path("checkpoints"));
    Cluster cluster(directory() / "job", saved("PS", {"strategy.bucket_bytes=1"}), {2, 2});
    wait_for_steps(cluster);
    cluster.server(server).signal(SIGTERM);
    expect_saved(cluster, 2);
    for (const int s : {0, 1}) EXPECT_EQ(cluster.server(s).exit_code(30s), kTerminated);
  }
}

TEST_F(StopFaultTest, AServerAskedAloneStopsAsynchronousWorkers) {
  Cluster cluster(directory() / "job", saved("PS", {"strategy.consistency=ASP"}), {2, 2});
  wait_for_steps(cluster);
  cluster.server(1).signal(SIGTERM);
  for (const int worker : {0, 1})
    EXPECT_EQ(cluster.worker(worker).exit_code(), kTerminated) << cluster.worker(worker).err();
  for (const int server : {0, 1})
    EXPECT_EQ(cluster.server(server).exit_code(30s), kTerminated) << cluster.server(server).err();
  EXPECT_THAT(checkpointed_steps(path("checkpoints")), ElementsAre(result_of(cluster.worker(0)).last_step));
}

TEST_F(StopFaultTest, AnAsynchronousWorkerAskedAloneLeavesTheOthersGoingOn) {
  Cluster cluster(directory() / "job", saved("PS", {"strategy.consistency=ASP"}), {2, 1});
  wait_for_steps(cluster);
  cluster.worker(1).signal(SIGTERM);
  EXPECT_EQ(cluster.worker(1).exit_code(), kTerminated) << cluster.worker(1).err();
  const std::size_t said = cluster.worker(0).err().size();
  EXPECT_TRUE(eventually([&] {
    return cluster.worker(0).err().find("examples/s", said) != std::string::npos;
  })) << cluster.worker(0).err();
  cluster.worker(0).signal(SIGTERM);
  expect_saved(cluster, 1);
  EXPECT_EQ(cluster.server(0).exit_code(30s), kTerminated) << cluster.server(0).err();
}

/// A peer is silent for good when the process is asked to stop: it does not wait for the step's deadline.
class LostPeerStopFaultTest : public StopFaultTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(LostPeerStopFaultTest, AWorkerThatIsAskedGivesItUpSoon) {
  const bool servers = std::string_view(GetParam()) == "PS";
  Cluster cluster(directory() / "job", saved(GetParam(), {"strategy.deadline_seconds=600"}),
                  {2, servers ? 1 : 0});
  wait_for_steps(cluster);
  cluster.worker(1).signal(SIGSTOP);
  std::this_thread::sleep_for(1s);
  cluster.worker(0).signal(SIGTERM);
  EXPECT_EQ(cluster.worker(0).exit_code(60s), 138) << cluster.worker(0).err();
  EXPECT_THAT(cluster.worker(0).err(), HasSubstr("asked to stop while step "));
}

INSTANTIATE_TEST_SUITE_P(All, LostPeerStopFaultTest, ::testing::Values("PS", "ALLREDUCE"),
                         [](const auto& info) { return std::string(info.param); });

/// Rows of the test file one by one, ten times: an evaluation that takes several seconds.
std::vector<std::string> slow_evaluation() {
  std::vector<std::string> set{"evaluation.enabled=true", "evaluation.batch_size=1"};
  std::string files = "input.test_files=adult.test";
  for (int i = 1; i < 10; ++i) files += ",adult.test";
  set.push_back(files);
  return set;
}

TEST_F(StopFaultTest, AnEvaluationIsBrokenOffAndTheStepSaved) {
  Cluster cluster(
      directory() / "job",
      saved("LOCAL", slow_evaluation()).with({"evaluation.every_steps=2", "metrics.progress_seconds=1e-9"}),
      {});
  ASSERT_TRUE(cluster.worker(0).says("step 2/1000000")) << cluster.worker(0).err();
  std::this_thread::sleep_for(100ms);
  cluster.worker(0).signal(SIGTERM);
  expect_saved(cluster, 1);
  EXPECT_THAT(cluster.worker(0).err(), HasSubstr("evaluation stopped"));
}

TEST_F(StopFaultTest, AnEvaluationMayTakeLongerThanFindingThePeers) {
  const auto process =
      run("train", job_of("LOCAL", {"steps=2", "evaluation.enabled=true", "evaluation.batch_size=1",
                                    "strategy.start_deadline_seconds=0.01"})
                       .arguments());
  EXPECT_EQ(process->wait({}), 0) << process->err();
  EXPECT_TRUE(result_of(*process).quality.has_value());
}

TEST_F(StopFaultTest, AWorkerStartedAgainInTimeGoesOnWithTheRound) {
  const auto cluster = with_killed_worker(1, job_of("PS", {"steps=2000"}), {2, 2});
  cluster->start_again(1);
  cluster->expect_success();
  for (int worker : {0, 1}) EXPECT_EQ(result_of(cluster->worker(worker)).last_step, 2000U);
}

TEST_F(StopFaultTest, ALeaderStartedAgainBeforeACheckpointGoesOnWithWhatTheServersHold) {
  const auto cluster = with_killed_worker(0, saved("PS", {"steps=2000"}), {2, 1}, {"--resume"});
  cluster->start_again(0);
  cluster->expect_success();
  EXPECT_LT(result_of(cluster->worker(0)).steps, 2000U) << "it began where the lost one was";
  EXPECT_THAT(checkpointed_steps(path("checkpoints")), Contains(2000U));
}

}  // namespace
}  // namespace braid::integration
