// Jobs that read Kafka (tests/support/kafka_broker.h) as processes: what comes later, kills, other workers,
// and brokers that are away.
#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>
#include <thread>

#include "tests/integration/killed_often.h"
#include "tests/support/kafka_broker.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class KafkaJobTest : public IntegrationTest {
 protected:
  static constexpr int kRows = 3200, kBatch = 64, kPartitions = 3;

  KafkaJobTest() {
    const auto made = run("make", {"data", "criteo", "--rows", std::to_string(kRows), "--seed", "5", "--out",
                                   (directory() / "rows").string()});
    EXPECT_EQ(made->exit_code(), 0) << made->err();
    std::ifstream lines(directory() / "rows" / "train.tsv");
    for (std::string line; std::getline(lines, line);) rows_.push_back(line);
    broker_.make_topic("clicks", kPartitions);
  }
  /// Rows [begin, end), to the partitions in turn, the first one twice.
  void send(int begin, int end) {
    std::vector<std::vector<std::optional<std::string>>> of(kPartitions);
    for (int r = begin; r < end; ++r)
      of[static_cast<std::size_t>(r % (kPartitions + 1)) % kPartitions].emplace_back(rows_.at(r));
    for (int p = 0; p < kPartitions; ++p) broker_.send("clicks", p, of[static_cast<std::size_t>(p)]);
  }
  Job job(int steps) const {
    return dlrm(directory())
        .with({"input.train_files=" + broker_.name("clicks"), "input.follow.poll_seconds=0.05",
               "input.follow.idle_seconds=60", "input.follow.records=100", "input.stream.virtual_shards=4",
               "staging.num_threads=2", "staging.capacity=3", "streams.policy=COST", "optimizer.kind=ADAM",
               "model.dropout=0", "steps=" + std::to_string(steps)});
  }
  Path path(const std::string& name) const {
    std::filesystem::create_directories(directory() / name);
    return directory() / name;
  }

  KafkaBroker broker_;
  std::vector<std::string> rows_;
};
using KafkaJobFaultTest = KafkaJobTest;

TEST_F(KafkaJobTest, TrainsWhatComesAndEndsWhenNothingDoes) {
  send(0, 1000);
  Cluster grows(path("run"), job(1000).with({"input.follow.idle_seconds=8"}), {});
  ASSERT_TRUE(reaches_step(grows.worker(0), 1)) << grows.worker(0).err();
  send(1000, kRows);
  grows.expect_success();
  EXPECT_THAT(grows.worker(0).err(), HasSubstr("no new record for 8 s"));
  // Shards that have fewer rows than others end it: each has had all but about a span.
  EXPECT_GE(losses_of(grows.steps_file(0)).size(), static_cast<std::size_t>(kRows / kBatch - 8));
}

TEST_F(KafkaJobTest, WorkersShareTheSameGlobalBatches) {
  send(0, kRows);
  const std::vector<float> alone = train("alone", job(40));
  Cluster two(path("two"), job(40).with({"strategy.kind=ALLREDUCE"}), {2, 0});
  two.expect_success();
  const std::vector<double> mean = two.mean_losses();
  ASSERT_EQ(mean.size(), 40U);
  for (std::size_t t = 0; t < mean.size(); ++t) EXPECT_NEAR(mean[t], alone[t], 2e-4 * alone[t]) << t;
}

TEST_F(KafkaJobFaultTest, KilledAtTenMomentsItEndsWithTheSameBits) {
  send(0, kRows);
  const auto job_in = [&](const Path& root) { return job(40).with(checkpoints_in(root, 2)); };
  expect_kills_change_nothing(path("kills"), job_in, 40, 2);
}

TEST_F(KafkaJobFaultTest, KilledItGoesOnWithOtherWorkersWhileRecordsCome) {
  send(0, 2000);
  const auto job_in = [&](const Path& root) { return job(25).with(checkpoints_in(root, 5)); };
  expect_other_workers_go_on(path("workers"), job_in, 10, {2});
  send(2000, kRows);
  Cluster more(path("more"), job(40).with(checkpoints_in(path("workers/ckpt"), 5)), {}, {"--resume"});
  more.expect_success();
  EXPECT_EQ(losses_of(more.steps_file(0), 25).size(), 15U) << "at its exact record";
}

TEST_F(KafkaJobFaultTest, ABrokerThatStaysAwayEndsTheJobAndIsNamed) {
  send(0, 500);
  Process cut(braid(job(1000).arguments()), {{"BRAID_IO_DEADLINE", "2s"}}, path("cut") / "log");
  ASSERT_TRUE(reaches_step(cut, 1)) << cut.err();
  broker_.set_down(true);
  EXPECT_EQ(cut.exit_code(), 138) << cut.err();
  EXPECT_THAT(cut.err(), AllOf(HasSubstr(broker_.address()), HasSubstr("BRAID_IO_DEADLINE")));
}

TEST_F(KafkaJobFaultTest, ABrokerThatComesBackIsWaitedFor) {
  send(0, 1000);
  Cluster cut(path("cut"), job(30), {});
  ASSERT_TRUE(reaches_step(cut.worker(0), 1)) << cut.worker(0).err();
  broker_.set_down(true);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  broker_.set_down(false);
  send(1000, kRows);
  cut.expect_success();
}

TEST_F(KafkaJobTest, WhatIsWrongIsRefusedBeforeTraining) {
  broker_.send("clicks", 0, {"no row of Criteo"});
  send(0, 600);
  broker_.refuse_topic("nosuch");
  for (const auto& [set, why] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{}, "clicks[0]"},
           {{"input.train_files=" + broker_.name("nosuch")}, "nosuch"},
           {{"input.train_files=kafka://me:hunter2@h:1/clicks"}, "BRAID_KAFKA_CONFIG"},
           {{"input.format=PARQUET"}, "values of kafka://"},
           {{"strategy.kind=PS"}, "input.follow is not for strategy.kind PS"}}) {
    const auto process = run("refused", job(100).with(set).arguments());
    EXPECT_NE(process->wait({}), 0) << why;
    EXPECT_THAT(process->err(), AllOf(HasSubstr(why), Not(HasSubstr("hunter2"))));
  }
}

}  // namespace
}  // namespace braid::integration
