// Restarts that must be exact whatever the run reads and however it ended: killed again and again, a damaged
// newest checkpoint, a full disk; and which checkpoints are made and kept.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <random>
#include <thread>

#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using std::chrono::microseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

class RestartTest : public IntegrationTest {
 protected:
  /// Clicks as TFRecords, read with a shuffle buffer, and rows that fill no batch carried over. The policy is
  /// given, as the plan that AUTO measures may be another in another run, and its hash is in the manifest.
  Job clicks(int steps) {
    const Path data = directory() / "clicks";
    if (!std::filesystem::exists(data)) {
      const auto made = run("make", {"data", "criteo", "--rows", "1500", "--seed", "3", "--format",
                                     "tfrecord", "--gzip", "--out", data.string()});
      EXPECT_EQ(made->wait({}), 0) << made->err();
    }
    return dlrm(data).with({"input.train_files=train.*.gz", "input.shuffle_buffer=200",
                            "input.carry_remainder=true", "optimizer.kind=ADAM", "model.dropout=0.2",
                            "streams.policy=COST", "steps=" + std::to_string(steps)});
  }
  Path path(const std::string& name) const { return directory() / name; }
};
using RestartFaultTest = RestartTest;

/// Everything that has a position: batches made ahead by two threads, a shuffle buffer, rows carried into the
/// next epoch, Adam's slots and powers, what dropout draws, evaluations in between. A run that is behind its
/// share of the steps is killed wherever it happens to be, or a little after a checkpoint, so that it gets
/// on; one that is ahead while it starts.
TEST_F(RestartFaultTest, KilledTwentyTimesARunEndsWithTheSameBits) {
  constexpr int kSteps = 500, kEvery = 10, kKills = 20;
  const auto job_in = [&](const std::string& root) {
    return clicks(kSteps)
        .with({"input.test_files=test.*.gz", "evaluation.enabled=true", "evaluation.every_steps=25",
               "staging.num_threads=2", "staging.capacity=3", "metrics.progress_seconds=1000"})
        .with(checkpoints_in(path(root), kEvery));
  };
  const std::vector<float> base = train("base", job_in("base-ckpt"));
  const Job job = job_in("ckpt");
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  int too_late = 0;
  for (int kill = 0; kill < kKills;) {
    const auto steps = checkpointed_steps(path("ckpt"));
    const std::uint64_t reached = steps.empty() ? 0 : steps.back();
    if (reached + kEvery >= std::uint64_t{kSteps}) {  // a test that is held up finds the run at its end
      ASSERT_LT(++too_late, 10) << "the run is too fast to be killed " << kKills << " times";
      std::filesystem::remove_all(path("ckpt"));
      kill = 0;
      continue;
    }
    const bool ahead = reached > static_cast<std::uint64_t>(kSteps * kill / kKills);
    Cluster killed(path("killed"), job, {}, {"--resume"});
    const int most_micros = kill % 2 == 0 && !ahead ? 150000 : 15000;
    if (kill % 2 == 1 && !ahead) {
      ASSERT_TRUE(killed.worker(0).says("checkpoint of step " + std::to_string(reached + kEvery) + ":"))
          << killed.worker(0).err();
    }
    std::this_thread::sleep_for(microseconds(std::uniform_int_distribution(0, most_micros)(random)));
    killed.worker(0).signal(SIGKILL);
    const int code = killed.worker(0).exit_code();
    if (code == 0) continue;
    ASSERT_EQ(code, 128 + SIGKILL);
    ++kill;
  }
  const auto steps = checkpointed_steps(path("ckpt"));
  ASSERT_FALSE(steps.empty());
  Cluster last(path("last"), job, {}, {"--resume"});
  last.expect_success();
  EXPECT_EQ(losses_of(last.steps_file(0), steps.back()),
            std::vector<float>(base.begin() + static_cast<std::ptrdiff_t>(steps.back()), base.end()))
      << "seed " << seed;
  EXPECT_TRUE(files_of_newest(path("ckpt")) == files_of_newest(path("base-ckpt"))) << "seed " << seed;
}

TEST_F(RestartTest, ShardedRowsResumeToTheSameBits) {
  const auto job = [&](const std::string& root, int steps) {
    return clicks(steps)
        .with({"input.shard=ROWS", "strategy.kind=ALLREDUCE"})
        .with(checkpoints_in(path(root), 20));
  };
  Cluster base(path("base"), job("base-ckpt", 60), {2, 0});
  base.expect_success();
  Cluster half(path("half"), job("ckpt", 40), {2, 0});
  half.expect_success();
  Cluster resumed(path("resumed"), job("ckpt", 60), {2, 0}, {"--resume"});
  resumed.expect_success();
  for (int worker : {0, 1}) {
    const std::vector<float> losses = losses_of(base.steps_file(worker));
    EXPECT_EQ(losses_of(resumed.steps_file(worker), 40),
              std::vector<float>(losses.begin() + 40, losses.end()));
  }
  EXPECT_EQ(values_of_newest(path("ckpt")), values_of_newest(path("base-ckpt")));
}

TEST_F(RestartTest, ADamagedNewestCheckpointIsLeftOutWithAWarning) {
  const std::vector<float> base = train("run", clicks(40).with(checkpoints_in(path("ckpt"), 20)));
  const Files expected = files_of_newest(path("ckpt"));
  const Path shard = path("ckpt") / "step-000000000040/worker-0.shard";
  std::fstream damage(shard, std::ios::in | std::ios::out | std::ios::binary);
  damage.seekp(5000);
  damage.put('\x55');
  damage.put('\x2A');
  damage.close();
  Cluster resumed(path("resumed"), clicks(40).with(checkpoints_in(path("ckpt"), 20)), {}, {"--resume"});
  resumed.expect_success();
  EXPECT_THAT(resumed.worker(0).err(), AllOf(HasSubstr("skipping a damaged checkpoint"),
                                             HasSubstr(shard.string()), HasSubstr("resumed at step 20")));
  EXPECT_EQ(losses_of(resumed.steps_file(0), 20), std::vector<float>(base.begin() + 20, base.end()));
  EXPECT_TRUE(files_of_newest(path("ckpt")) == expected) << "the damaged one is replaced by the same bits";
}

TEST_F(RestartTest, WhatEndsTheBitsOfARunIsRefusedUnlessItIsAccepted) {
  train("run", clicks(20).with(checkpoints_in(path("ckpt"), 20)));
  const Files before = files_of_newest(path("ckpt"));
  const std::pair<const char*, const char*> cases[] = {
      {"input.global_batch_size=32", "the input's batch was 64 and is 32"},
      {"seed=99", "seed was "},
      {"input.shuffle_buffer=100",
       "input's order was shuffled, shuffle_buffer 200 and is shuffled, shuffle_buffer 100"},
      {"optimizer.kind=ADAGRAD", "optimizer.kind was ADAM and is ADAGRAD"},
      {"model.name=dcn_v2", "model.name was dlrm and is dcn_v2"}};
  for (const auto& [setting, told] : cases) {
    const Job other = clicks(30).with({setting}).with(checkpoints_in(path("ckpt"), 20));
    std::vector<std::string> arguments = other.arguments();
    arguments.emplace_back("--resume");
    const auto refused = run("refused", arguments);
    EXPECT_EQ(refused->exit_code(), 2) << setting;
    EXPECT_THAT(refused->err(), AllOf(HasSubstr(told), HasSubstr("--accept-changes"))) << setting;
  }
  EXPECT_TRUE(files_of_newest(path("ckpt")) == before);
  Cluster accepted(path("accepted"), clicks(30).with({cases[0].first}).with(checkpoints_in(path("ckpt"), 20)),
                   {}, {"--resume", "--accept-changes"});
  accepted.expect_success();
  EXPECT_THAT(accepted.worker(0).err(), AllOf(HasSubstr(cases[0].second), HasSubstr("resumed at step 20")));
}

TEST_F(RestartTest, ALearningRateOrMoreStepsAreNoOtherJob) {
  train("run", clicks(20).with(checkpoints_in(path("ckpt"), 20)));
  Cluster resumed(path("resumed"),
                  clicks(30)
                      .with({"optimizer.learning_rate=0.001", "streams.count=3", "runtime.precision=BF16"})
                      .with(checkpoints_in(path("ckpt"), 20)),
                  {}, {"--resume"});
  resumed.expect_success();
  EXPECT_THAT(resumed.worker(0).err(), HasSubstr("resumed at step 20"));
}

TEST_F(RestartTest, ServersHearOfARefusedResume) {
  const Job job = clicks(20).with(checkpoints_in(path("ckpt"), 20)).with({"strategy.kind=PS"});
  Cluster first(path("first"), job, {2, 1});
  first.expect_success();
  Cluster other(path("other"), job.with({"steps=30", "optimizer.kind=ADAGRAD"}), {2, 1}, {"--resume"});
  EXPECT_THAT(other.exit_codes(), ::testing::Each(2));
  EXPECT_THAT(other.worker(0).err(), HasSubstr("optimizer.kind was ADAM and is ADAGRAD"));
}

TEST_F(RestartTest, CheckpointsByTheClockLeaveTheBitsAlone) {
  const Job job = linear_regression().with({"steps=3000"});
  const std::vector<float> base =
      train("base", job.with({"checkpoint.directory=" + path("base-ckpt").string()}));
  const std::vector<float> timed =
      train("timed", job.with({"checkpoint.directory=" + path("ckpt").string(),
                               "checkpoint.every_seconds=0.01", "checkpoint.keep=3"}));
  EXPECT_EQ(timed, base);
  EXPECT_GT(checkpointed_steps(path("ckpt")).size(), 1U);
  EXPECT_EQ(values_of_newest(path("ckpt")), values_of_newest(path("base-ckpt")));
}

TEST_F(RestartTest, TheBestByItsMetricStays) {
  // A learning rate that makes it worse after a while.
  const Job job = wide_deep().with(
      {"steps=100", "evaluation.enabled=true", "evaluation.every_steps=10", "checkpoint.every_steps=10",
       "checkpoint.keep=1", "checkpoint.keep_best=2", "optimizer.kind=SGD", "optimizer.learning_rate=3",
       "checkpoint.directory=" + path("ckpt").string()});
  const auto process = run("run", job.arguments());
  ASSERT_EQ(process->wait({}), 0) << process->err();
  const std::string log = process->err();
  std::vector<std::pair<double, std::uint64_t>> measured;
  for (std::size_t at = 0; (at = log.find("step ", at)) != std::string::npos; ++at) {
    unsigned long long step = 0;
    double auc = 0;
    if (std::sscanf(log.c_str() + at, "step %llu: auc %lf", &step, &auc) == 2)
      measured.emplace_back(auc, step);
  }
  ASSERT_EQ(measured.size(), 10U) << log;
  std::sort(measured.rbegin(), measured.rend());
  ASSERT_NE(measured[1].first, measured[2].first)
      << "equal to the digits that are printed: take another rate";
  std::vector<std::uint64_t> expected{measured[0].second, measured[1].second, 100};
  std::sort(expected.begin(), expected.end());
  expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
  EXPECT_EQ(checkpointed_steps(path("ckpt")), expected);
}

TEST_F(RestartFaultTest, AFullDiskEndsTheRunAndLeavesTheCheckpointsWhole) {
  train("run", clicks(20).with(checkpoints_in(path("ckpt"), 20)));
  const Files before = files_of_newest(path("ckpt"));
  std::vector<std::string> arguments = clicks(60).with(checkpoints_in(path("ckpt"), 20)).arguments();
  arguments.emplace_back("--resume");
  // No file may grow beyond 64 KiB: writes fail as on a full disk.
  std::vector<std::string> command{"bash", "-c", "ulimit -f 64; exec \"$0\" \"$@\""};
  for (std::string& word : braid(arguments)) command.push_back(word);
  Process full(command, {}, path("full"));
  EXPECT_EQ(full.exit_code(), 138);
  EXPECT_THAT(full.err(), AllOf(HasSubstr("cannot write to '"), HasSubstr("worker-0.shard"),
                                HasSubstr("File too large")));
  EXPECT_EQ(checkpointed_steps(path("ckpt")), std::vector<std::uint64_t>{20});
  EXPECT_TRUE(files_of_newest(path("ckpt")) == before);
  for (const auto& entry : std::filesystem::directory_iterator(path("ckpt")))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp-")) << entry.path() << " is left";
}

TEST_F(RestartFaultTest, AFullDiskUnderTheLogsIsNoReasonToEnd) {
  std::vector<std::string> command{"bash", "-c", "exec \"$0\" \"$@\" 2>/dev/full"};
  for (const std::string& word :
       braid(clicks(200).with({"metrics.steps_file=/dev/full", "metrics.progress_seconds=1e-9"}).arguments()))
    command.push_back(word);
  Process full(command, {}, path("full"));
  EXPECT_EQ(full.exit_code(), 0);
  EXPECT_EQ(result_of(full).last_step, 200U);
  command[2] = "exec \"$0\" \"$@\" >/dev/full";
  Process lost(command, {}, path("lost"));
  EXPECT_EQ(lost.exit_code(), 0);
  EXPECT_THAT(lost.err(), HasSubstr("the result cannot be written: No space left on device"));
}

}  // namespace
}  // namespace braid::integration
