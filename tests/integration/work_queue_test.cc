// Jobs whose batches a queue gives out (input.shard DYNAMIC). The model counts: a table has a row for each of
// the data, and each use of a row takes 1 from it. So the last checkpoint says how often each was used.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <thread>

#include "launch/port_reservation.h"
#include "tests/integration/checkpoints.h"
#include "tests/integration/count_model.h"

namespace braid::integration {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr int kRows = 2400;
constexpr int kBatch = 8;  // rows of a worker's step

/// Variables of this process, which those that it starts inherit, while it lives.
class Environment {
 public:
  explicit Environment(Variables variables) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : variables_) ::unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const Variables variables_;
};

/// Every primitive of oneDNN takes longer, in worker `index` alone, or in all.
Variables slow_kernels(std::chrono::microseconds time, int index = -1) {
  Variables variables{{"LD_PRELOAD", BRAID_SLOW_DOWN}, {"SLOW_KERNELS", std::to_string(time.count())}};
  if (index >= 0) variables["SLOW_TASK"] = R"("index":)" + std::to_string(index);
  return variables;
}

class WorkQueueTest : public IntegrationTest {
 protected:
  WorkQueueTest() {
    std::ofstream rows(path("rows.csv"));
    for (int r = 0; r < kRows; ++r) rows << r << "\n";
    write("count.pbtxt", count_graph(kRows));
    write("job.pbtxt", R"(name: "count" model { graph { file: ")" + path("count.pbtxt") +
                           R"(" loss: "loss" feeds { value: "id" column: "label" } frozen: "w" } }
      optimizer { kind: SGD learning_rate: )" +
                           std::to_string(kBatch) + R"( }
      input { format: CSV train_files: "rows.csv" shard: DYNAMIC take_batches: 4
        columns { name: "id" kind: CLASS } }
      runtime { device: CPU intra_op_threads: 1 } evaluation { enabled: false }
      strategy { kind: PS consistency: ASP deadline_seconds: 30 })");
  }

  Job job(int workers, int epochs, const std::vector<std::string>& more = {}) const {
    return Job{path("job.pbtxt"),
               directory(),
               {"input.global_batch_size=" + std::to_string(kBatch * workers),
                "epochs=" + std::to_string(epochs), "metrics.progress_seconds=0.05"}}
        .with(more);
  }
  std::vector<std::string> checkpoints(int every) const {
    return checkpoints_in(directory() / "ckpt", every);
  }

  /// How often each row was used, by the newest checkpoint.
  std::vector<int> uses() const {
    std::vector<int> uses;
    const Values values = values_of_newest(directory() / "ckpt");
    if (const auto whole = values.find("table"); whole != values.end())
      for (const float value : whole->second) uses.push_back(static_cast<int>(-value));
    else
      for (int r = 0; r < kRows; ++r) {
        const auto row = values.find("table[" + std::to_string(r) + "]");
        uses.push_back(row == values.end() ? 0 : static_cast<int>(-row->second.at(0)));
      }
    EXPECT_EQ(uses.size(), static_cast<std::size_t>(kRows));
    return uses;
  }
  /// Each row at least `epochs` times, and no more than `most` uses beyond that.
  void expect_at_least_once(int epochs, int most) const {
    int beyond = 0;
    for (const int times : uses()) {
      EXPECT_GE(times, epochs);
      beyond += times - epochs;
    }
    EXPECT_LE(beyond, most);
  }

  /// Batches that a worker took, as it says at its end.
  static int taken(const Process& worker) {
    const std::string log = worker.err(), before = "this worker took ";
    const auto at = log.find(before);
    return at == std::string::npos ? -1 : std::atoi(log.c_str() + at + before.size());
  }
};
using WorkQueueFaultTest = WorkQueueTest;

TEST_F(WorkQueueTest, EachRowIsUsedOnceAnEpochAndASlowWorkerTakesFewer) {
  const Environment slow(slow_kernels(10ms, 2));
  Cluster cluster(directory() / "run", job(3, 2, checkpoints(1000000)), {3, 2});
  cluster.expect_success();
  EXPECT_THAT(uses(), Each(2));
  const int fast = std::min(taken(cluster.worker(0)), taken(cluster.worker(1)));
  EXPECT_GT(fast, 2 * taken(cluster.worker(2)));
  EXPECT_EQ(taken(cluster.worker(0)) + taken(cluster.worker(1)) + taken(cluster.worker(2)),
            2 * kRows / kBatch);
}

TEST_F(WorkQueueTest, RowsThatAreStreamedToo) {
  const Environment slow(slow_kernels(5ms, 1));
  for (const char* take : {"input.take_batches=4", "input.take_batches=64"}) {
    std::filesystem::remove_all(directory() / "ckpt");
    Cluster cluster(directory() / "run",
                    job(2, 2, checkpoints(1000000))
                        .with({take, "input.read=STREAM", "input.stream.block_bytes=256",
                               "input.stream.window_rows=640", "input.stream.memory_bytes=65536"}),
                    {2, 1});
    cluster.expect_success();
    EXPECT_THAT(uses(), Each(2)) << take;
    EXPECT_GT(taken(cluster.worker(0)), taken(cluster.worker(1))) << take;
  }
}

TEST_F(WorkQueueTest, AResumedJobGivesTheRestAlsoToAnotherNumberOfWorkers) {
  Cluster first(directory() / "first", job(2, 1, checkpoints(10)), {2, 1});
  first.expect_success();
  EXPECT_THAT(uses(), Each(1));
  Cluster more(directory() / "more", job(3, 2, checkpoints(10)), {3, 2}, {"--resume"});
  more.expect_success();
  EXPECT_THAT(uses(), Each(2));
  // Batches of twice the rows, as one worker makes them of a global batch for two.
  Cluster fewer(directory() / "fewer",
                job(2, 3, checkpoints(10)).with({"optimizer.learning_rate=" + std::to_string(2 * kBatch)}),
                {1, 1}, {"--resume"});
  fewer.expect_success();
  EXPECT_THAT(uses(), Each(3));
}

TEST_F(WorkQueueTest, TheLastCheckpointHasWhatOthersMadeBehindTheLeadersLastStep) {
  const Environment slow(slow_kernels(20ms, 1));
  // The leader saves behind each of its steps, and worker 1 is at work when there are no more for it.
  Cluster cluster(directory() / "run", job(2, 1, checkpoints(1)), {2, 1});
  cluster.expect_success();
  EXPECT_THAT(uses(), Each(1));
}

TEST_F(WorkQueueTest, AloneTheOrderIsThatOfAll) {
  const std::vector<std::string> local{"strategy.kind=LOCAL", "strategy.consistency=BSP"};
  const std::vector<float> all = train("all", job(1, 1, local).with({"input.shard=ALL"}));
  EXPECT_EQ(train("dynamic", job(1, 1, local)), all);
}

TEST_F(WorkQueueTest, BatchesOfDifferentSizesAreRefused) {
  Cluster cluster(directory() / "run", job(2, 1).with({"input.global_batch_size=17"}), {2, 1});
  EXPECT_EQ(cluster.worker(0).exit_code(), 2);
  EXPECT_THAT(cluster.worker(0).err(), HasSubstr("17 is no multiple of 2"));
}

TEST_F(WorkQueueFaultTest, AKilledJobGoesOnFromItsCheckpointWithMoreWorkers) {
  const Environment slow(slow_kernels(2ms));
  {
    Cluster killed(directory() / "killed", job(2, 3, checkpoints(20)), {2, 1});
    ASSERT_TRUE(killed.worker(0).says("checkpoint of step 60:")) << killed.worker(0).err();
  }
  Cluster again(directory() / "again", job(3, 3, checkpoints(20)), {3, 1}, {"--resume"});
  again.expect_success();
  EXPECT_THAT(again.worker(0).err(), HasSubstr("resumed at step"));
  // What the other worker finished while the servers' tables were saved, and had not said before.
  expect_at_least_once(3, 100 * kBatch);
}

TEST_F(WorkQueueFaultTest, AWorkerThatIsKilledAndStartedAgainLeavesNothingOut) {
  const Environment slow(slow_kernels(2ms));
  Cluster cluster(directory() / "run", job(3, 10, checkpoints(1000000)), {3, 1});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 50)) << cluster.worker(0).err();
  cluster.worker(1).signal(SIGKILL);
  EXPECT_EQ(cluster.worker(1).exit_code(), 128 + SIGKILL);
  cluster.start_again(1, {"--resume"});
  cluster.expect_success();
  EXPECT_GT(taken(cluster.worker(1)), 0);
  expect_at_least_once(10, 500 * kBatch);  // at most what it made in the second before
}

TEST_F(WorkQueueFaultTest, WhatAWorkerHadThatStaysAwayIsMadeByOthers) {
  const Environment slow(slow_kernels(2ms));
  Cluster cluster(directory() / "run", job(3, 2, checkpoints(1000000)).with({"strategy.deadline_seconds=3"}),
                  {3, 1});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 50)) << cluster.worker(0).err();
  cluster.worker(2).signal(SIGKILL);
  EXPECT_EQ(cluster.worker(2).exit_code(), 128 + SIGKILL);
  EXPECT_EQ(cluster.worker(0).exit_code(), 0) << cluster.worker(0).err();
  EXPECT_EQ(cluster.worker(1).exit_code(), 0) << cluster.worker(1).err();
  expect_at_least_once(2, 500 * kBatch);
}

TEST_F(WorkQueueFaultTest, ALeaderThatIsKilledAndStartedAgainPutsTheQueueBackWithTheTables) {
  const Environment slow(slow_kernels(2ms));
  Cluster cluster(directory() / "run", job(2, 3, checkpoints(20)), {2, 1});
  ASSERT_TRUE(cluster.worker(0).says("checkpoint of step 60:")) << cluster.worker(0).err();
  cluster.worker(0).signal(SIGKILL);
  EXPECT_EQ(cluster.worker(0).exit_code(), 128 + SIGKILL);
  std::this_thread::sleep_for(300ms);  // the other one goes on, in vain
  cluster.start_again(0, {"--resume"});
  cluster.expect_success();
  expect_at_least_once(3, 100 * kBatch);
}

TEST_F(WorkQueueFaultTest, ALeaderWithoutACheckpointKeepsTheQueueThatTheServerHas) {
  const Environment slow(slow_kernels(2ms));
  Cluster cluster(directory() / "run", job(2, 10, checkpoints(1000000)), {2, 1});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 50)) << cluster.worker(0).err();
  cluster.worker(0).signal(SIGKILL);
  EXPECT_EQ(cluster.worker(0).exit_code(), 128 + SIGKILL);
  cluster.start_again(0, {"--resume"});
  cluster.expect_success();
  EXPECT_GT(taken(cluster.worker(0)), 0);
  expect_at_least_once(10, 500 * kBatch);
}

/// What Kubernetes' training operator tells workers that come and go (enableDynamicWorker): each knows itself
/// and the servers, a server itself alone.
class OpenPlacesFaultTest : public WorkQueueFaultTest {
 protected:
  static constexpr int kPlaces = 4, kServers = 2;

  Job elastic(int epochs) const {
    return job(kPlaces, epochs, checkpoints(1000000))
        .with({"strategy.elastic.max_workers=" + std::to_string(kPlaces), "strategy.deadline_seconds=3"});
  }
  std::unique_ptr<Process> server(const Job& job, int index) {
    return start(job, "ps", index, R"("ps": [")" + address(index) + R"("], "worker": {})");
  }
  std::unique_ptr<Process> worker(const Job& job, int index) {
    return start(job, "worker", index,
                 R"("ps": [")" + address(0) + R"(", ")" + address(1) + R"("], "worker": {")" +
                     std::to_string(index) + R"(": ")" + address(kServers + index) + R"("})");
  }

 private:
  const std::string& address(int index) const { return ports_.addresses()[static_cast<std::size_t>(index)]; }
  std::unique_ptr<Process> start(const Job& job, const std::string& type, int index,
                                 const std::string& cluster) {
    const std::string config = R"({"sparseCluster": {)" + cluster + R"(}, "task": {"type": ")" + type +
                               R"(", "index": )" + std::to_string(index) + "}}";
    return std::make_unique<Process>(
        braid(job.arguments()), Variables{{"TF_CONFIG", config}},
        directory() / (type + std::to_string(index) + "-" + std::to_string(started_++)));
  }
  launch::PortReservation ports_{kServers + kPlaces + 1};
  int started_ = 0;
};

TEST_F(OpenPlacesFaultTest, WorkersComeGoAndComeAgainAndEachRowIsUsed) {
  const Environment slow(slow_kernels(2ms));
  const Job job = elastic(20);
  const auto first_server = server(job, 0), second_server = server(job, 1);
  const auto leader = worker(job, 0);
  ASSERT_TRUE(reaches_step(*leader, 20)) << leader->err();
  const auto killed = worker(job, 3), asked = worker(job, 1);
  for (Process* each : {killed.get(), asked.get()}) ASSERT_TRUE(each->says("handed over")) << each->err();
  std::this_thread::sleep_for(500ms);
  killed->signal(SIGKILL);
  asked->signal(SIGTERM);
  EXPECT_EQ(asked->exit_code(), 143) << asked->err();
  EXPECT_EQ(killed->exit_code(), 128 + SIGKILL);
  const auto again = worker(job, 3);
  for (Process* each : {leader.get(), again.get(), first_server.get(), second_server.get()})
    EXPECT_EQ(each->exit_code(), 0) << each->err();
  EXPECT_GT(taken(*again), 0);
  EXPECT_GT(taken(*asked), 0);
  expect_at_least_once(20, 500 * kBatch);
}

TEST_F(OpenPlacesFaultTest, AWorkerWithoutAPlaceIsRefused) {
  const Job job = elastic(1);
  const auto beyond = worker(job, kPlaces);
  EXPECT_EQ(beyond->exit_code(), 2);
  EXPECT_THAT(beyond->err(), HasSubstr("has places for workers 0 to 3 (strategy.elastic.max_workers)"));
}

TEST_F(OpenPlacesFaultTest, TheLauncherStartsALostWorkerAgainAndTheOthersGoOn) {
  const Environment slow(slow_kernels(2ms));
  std::vector<std::string> words{"launch", "--workers",      "2", "--ps", "1", "--max-workers",
                                 "4",      "--max-restarts", "1", "--"};
  for (const std::string& word : job(kPlaces, 10, checkpoints(1000000)).arguments()) words.push_back(word);
  Process launcher(braid(words), {}, directory() / "launcher");
  ASSERT_TRUE(reaches_step(launcher, 20)) << launcher.err();
  const pid_t lost = child_with(launcher.pid(), R"("type":"worker","index":1)");
  ASSERT_GT(lost, 0);
  ::kill(lost, SIGKILL);
  EXPECT_EQ(launcher.exit_code(), 0) << launcher.err();
  EXPECT_THAT(launcher.err(), HasSubstr("the others go on, and it is started again"));
  expect_at_least_once(10, 500 * kBatch);
}

}  // namespace
}  // namespace braid::integration
