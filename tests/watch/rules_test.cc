#include "watch/rules.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/watch/made_job.h"

namespace braid::watch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// "slow_input worker 1"
std::vector<std::string> found(const JobStatus& job) {
  std::vector<std::string> names;
  for (const Warning& warning : find_warnings(job)) names.push_back(warning.rule + " " + warning.task);
  return names;
}

Status& status(JobStatus& job, int peer) { return *job.peers[static_cast<std::size_t>(peer)].status; }

TEST(RulesTest, AJobThatComputesHasNoWarning) {
  EXPECT_THAT(found(made_job(3, 2)), IsEmpty());
  EXPECT_THAT(found(made_job(1, 0)), IsEmpty());
  EXPECT_THAT(found(JobStatus{}), IsEmpty());
}

TEST(RulesTest, SlowInputNamesTheSettingThatHelps) {
  JobStatus job = made_job(2, 0);
  for (Stream& stream : status(job, 1).streams)
    if (stream.cause == "compute") stream.wait["input"] = 0.43;
  const auto warnings = find_warnings(job);
  ASSERT_THAT(found(job), ElementsAre("slow_input worker 1"));
  EXPECT_THAT(warnings[0].text, HasSubstr("43 % of the compute streams' time waits for batches"));
  EXPECT_THAT(warnings[0].advice, HasSubstr("staging.num_threads: 2"));
  status(job, 1).stage_threads_set = 0;
  EXPECT_THAT(find_warnings(job)[0].advice, HasSubstr("staging.enabled: true"));
  status(job, 1).stage_threads_set = status(job, 1).stages[0].threads = 4;  // as many as cores
  EXPECT_THAT(find_warnings(job)[0].advice, HasSubstr("cheaper input"));
}

TEST(RulesTest, TheWorkerThatWaitsLeastIsTheSlowOne) {
  JobStatus job = made_job(3, 0);
  for (const int waiting : {0, 2}) {
    Stream lane;
    lane.name = lane.cause = "comm";
    lane.busy = 0.6;
    status(job, waiting).streams.push_back(lane);
  }
  const auto warnings = find_warnings(job);
  ASSERT_THAT(found(job), ElementsAre("slow_worker worker 1"));
  EXPECT_THAT(warnings[0].text, HasSubstr("60 %"));
  EXPECT_THAT(warnings[0].advice, HasSubstr("node1"));
}

TEST(RulesTest, WorkersOfTheirOwnPaceDifferInRates) {
  JobStatus job = made_job(3, 0);
  status(job, 2).examples_per_second = 3000;
  EXPECT_THAT(found(job), ElementsAre("slow_worker worker 2"));
}

TEST(RulesTest, AHotServerIsOneOfManyOrHasNoCoresLeft) {
  JobStatus job = made_job(2, 3);
  for (const int worker : {0, 1})
    for (Stream& stream : status(job, worker).streams)
      if (stream.cause == "pull") stream.busy = 0.5;
  EXPECT_THAT(found(job), IsEmpty());
  status(job, 3).server->bytes_per_second = 20e6;
  EXPECT_THAT(found(job), ElementsAre("hot_server ps 1"));
  EXPECT_THAT(find_warnings(job)[0].text, HasSubstr("2.1 times the bytes"));
  JobStatus lone = made_job(1, 1);
  for (Stream& stream : status(lone, 0).streams)
    if (stream.cause == "pull") stream.busy = 0.5;
  status(lone, 1).process.cores_used = 3.9;
  ASSERT_THAT(found(lone), ElementsAre("hot_server ps 0"));
  EXPECT_THAT(find_warnings(lone)[0].advice, HasSubstr("more servers"));
}

TEST(RulesTest, StreamsThatTakeTurns) {
  JobStatus job = made_job(1, 0);
  status(job, 0).overlap = 1.01;
  ASSERT_THAT(found(job), ElementsAre("no_overlap worker 0"));
  EXPECT_THAT(find_warnings(job)[0].advice, HasSubstr("streams.count: 1"));
  status(job, 0).streams[1].busy = 0;  // one stream cannot overlap
  EXPECT_THAT(found(job), IsEmpty());
}

TEST(RulesTest, SmallBatches) {
  JobStatus job = made_job(1, 0);
  for (Stream& stream : status(job, 0).streams) stream.node_seconds = 2e-6;
  ASSERT_THAT(found(job), ElementsAre("small_batches worker 0"));
  EXPECT_THAT(find_warnings(job)[0].text, AllOf(HasSubstr("2.0 us"), HasSubstr("64 rows")));
  EXPECT_THAT(find_warnings(job)[0].advice, HasSubstr("input.global_batch_size: 1024"));
}

TEST(RulesTest, MemoryOfProcessesAndCards) {
  JobStatus job = made_job(1, 1);
  status(job, 1).process.resident_bytes = std::uint64_t{7500} << 20;
  EXPECT_THAT(found(job), ElementsAre("memory ps 0"));
  Gpu gpu;
  gpu.name = "cuda:0 A card";
  gpu.memory_used_bytes = std::uint64_t{75} << 30;
  gpu.memory_total_bytes = std::uint64_t{80} << 30;
  status(job, 0).gpus.push_back(gpu);
  EXPECT_THAT(found(job), ElementsAre("memory worker 0", "memory ps 0"));
  EXPECT_THAT(find_warnings(job)[0].text, HasSubstr("94 % of the memory of cuda:0 A card"));
}

TEST(RulesTest, AStoppedPeerIsOneThatIsSilentWhileOthersAnswer) {
  JobStatus job = made_job(3, 1);
  job.peers[1].error = "no answer in time";
  job.peers[1].silent_seconds = 1;
  EXPECT_THAT(found(job), IsEmpty()) << "it may be busy";
  job.peers[1].silent_seconds = 5;
  ASSERT_THAT(found(job), ElementsAre("stopped_peer worker 1"));
  EXPECT_THAT(find_warnings(job)[0].text, AllOf(HasSubstr("127.0.0.1:9001"), HasSubstr("since 5 s")));
  for (Peer& peer : job.peers) peer.error = "connection refused";
  EXPECT_THAT(found(job), IsEmpty()) << "the job is over, or cannot be reached";
}

TEST(RulesTest, CheckpointsThatTakeMuchOfTheTime) {
  JobStatus job = made_job(1, 0);
  status(job, 0).checkpoints = {
      .saved = 10, .last_step = 1000, .age_seconds = 1, .duration_seconds = 2, .spent_seconds = 20};
  status(job, 0).pause_seconds = 20;
  ASSERT_THAT(found(job), ElementsAre("slow_disk worker 0"));
  EXPECT_THAT(find_warnings(job)[0].text, HasSubstr("18 % of the time"));
  status(job, 0).checkpoints->spent_seconds = 2;
  EXPECT_THAT(found(job), IsEmpty());
}

TEST(RulesTest, SharesOfTheFirstMomentsSayNothing) {
  JobStatus job = made_job(1, 0);
  status(job, 0).overlap = 1;
  status(job, 0).window_seconds = 0.1;
  EXPECT_THAT(found(job), IsEmpty());
}

TEST(RulesTest, EveryRuleHasANameAndACondition) {
  std::set<std::string> names;
  for (const Rule& rule : rules()) {
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    EXPECT_THAT(std::string(rule.condition), ::testing::Not(IsEmpty()));
  }
  EXPECT_EQ(names.size(), 8U);
}

}  // namespace
}  // namespace braid::watch
