// Jobs whose rows are streamed: the same batches for any number of threads and workers, restarts to the same
// bits, memory that is bounded.
#include <gmock/gmock.h>
#include <signal.h>

#include <cmath>
#include <random>
#include <thread>

#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using ::testing::HasSubstr;

class StreamingTest : public IntegrationTest {
 protected:
  /// 4,000 rows in three files, blocks of some dozen rows, so that an epoch is of many windows.
  Job clicks(int steps, const std::string& format = "tsv") {
    const Path data = directory() / ("clicks-" + format);
    if (!std::filesystem::exists(data)) {
      std::filesystem::create_directories(data);
      for (int i = 0; i < 3; ++i) {
        const Path part = directory() / ("part-" + std::to_string(i));
        const auto made = run("make", {"data", "criteo", "--rows", std::to_string(1000 + 500 * i), "--seed",
                                       std::to_string(3 + i), "--format", format, "--out", part.string()});
        EXPECT_EQ(made->wait({}), 0) << made->err();
        std::filesystem::rename(part / ("train." + format), data / ("part-" + std::to_string(i)));
        std::filesystem::rename(part / ("test." + format), directory() / "test");
      }
    }
    return dlrm(directory())
        .with({"input.train_files=" + data.filename().string(), "input.read=STREAM",
               "input.stream.block_bytes=4096", "input.stream.window_rows=256",
               "input.stream.virtual_shards=4", "optimizer.kind=ADAM", "model.dropout=0.2",
               "streams.policy=COST", "steps=" + std::to_string(steps)});
  }
  Path path(const std::string& name) const { return directory() / name; }
};
using StreamingFaultTest = StreamingTest;

TEST_F(StreamingTest, ThreadsAndReadersDoNotChangeABit) {
  const std::vector<float> base = train("base", clicks(150));
  for (const char* threads : {"2", "4", "8"})
    EXPECT_EQ(train(std::string("threads-") + threads,
                    clicks(150).with({std::string("staging.num_threads=") + threads, "staging.capacity=4",
                                      std::string("input.stream.threads=") + threads})),
              base);
  for (const char* how : {"ON", "OFF"})
    EXPECT_EQ(train(std::string("direct-") + how,
                    clicks(150).with({std::string("input.stream.direct_reads=") + how})),
              base);
  EXPECT_EQ(train("little memory", clicks(150).with({"input.stream.memory_bytes=400000"})), base)
      << "memory decides what is held, while windows fit";
}

TEST_F(StreamingTest, WorkersShareTheSameGlobalBatches) {
  const std::vector<float> alone = train("alone", clicks(60).with({"model.dropout=0"}));
  for (const int workers : {2, 4}) {
    Cluster cluster(path("w" + std::to_string(workers)),
                    clicks(60).with({"model.dropout=0", "strategy.kind=ALLREDUCE"}), {workers, 0});
    cluster.expect_success();
    const std::vector<double> mean = cluster.mean_losses();
    ASSERT_EQ(mean.size(), 60U);
    for (std::size_t t = 0; t < 60; ++t) EXPECT_NEAR(mean[t], alone[t], 2e-5 * std::abs(alone[t])) << t;
  }
}

TEST_F(StreamingFaultTest, KilledTenTimesARunEndsWithTheSameBits) {
  constexpr int kSteps = 400, kEvery = 10, kKills = 10;
  const auto job_in = [&](const std::string& root) {
    return clicks(kSteps)
        .with({"staging.num_threads=2", "staging.capacity=3", "input.carry_remainder=true"})
        .with(checkpoints_in(path(root), kEvery));
  };
  const std::vector<float> base = train("base", job_in("base-ckpt"));
  const Job job = job_in("ckpt");
  std::mt19937 random(std::random_device{}());
  for (int kill = 0, late = 0; kill < kKills && late < 20;) {
    const auto steps = checkpointed_steps(path("ckpt"));
    const std::uint64_t reached = steps.empty() ? 0 : steps.back();
    if (reached + kEvery >= std::uint64_t{kSteps}) {
      std::filesystem::remove_all(path("ckpt"));
      ++late;
      continue;
    }
    Cluster killed(path("killed"), job, {}, {"--resume"});
    ASSERT_TRUE(killed.worker(0).says("checkpoint of step " + std::to_string(reached + kEvery) + ":"))
        << killed.worker(0).err();
    std::this_thread::sleep_for(std::chrono::microseconds(std::uniform_int_distribution(0, 20000)(random)));
    killed.worker(0).signal(SIGKILL);
    if (killed.worker(0).exit_code() != 0) ++kill;
  }
  const auto steps = checkpointed_steps(path("ckpt"));
  ASSERT_FALSE(steps.empty());
  Cluster last(path("last"), job, {}, {"--resume"});
  last.expect_success();
  EXPECT_EQ(losses_of(last.steps_file(0), steps.back()),
            std::vector<float>(base.begin() + static_cast<std::ptrdiff_t>(steps.back()), base.end()));
  EXPECT_TRUE(files_of_newest(path("ckpt")) == files_of_newest(path("base-ckpt")));
}

TEST_F(StreamingTest, ARunGoesOnWithAnotherNumberOfWorkers) {
  const auto job = [&](int steps) {
    return clicks(steps)
        .with({"model.dropout=0", "strategy.kind=ALLREDUCE"})
        .with(checkpoints_in(path("ckpt"), 20));
  };
  const std::vector<float> base = train("base", clicks(60).with({"model.dropout=0"}));
  Cluster two(path("two"), job(40), {2, 0});
  two.expect_success();
  Cluster one(path("one"), job(60).with({"strategy.kind=LOCAL"}), {}, {"--resume"});
  one.expect_success();
  const std::vector<float> losses = losses_of(one.steps_file(0), 40);
  for (std::size_t t = 0; t < 20; ++t)
    EXPECT_NEAR(losses[t], base[40 + t], 5e-5 * std::abs(base[40 + t])) << t;
  EXPECT_THAT(one.worker(0).err(), ::testing::Not(HasSubstr("the input differs")));
}

/// A directory that files of clicks() appear in, as a job that follows it sees it.
class FollowTest : public StreamingTest {
 protected:
  FollowTest() { std::filesystem::create_directories(path("grows")); }
  Job job() {
    return clicks(100000).with({"input.train_files=grows", "input.follow.poll_seconds=0.05",
                                "input.follow.idle_seconds=60", "staging.num_threads=2",
                                "staging.capacity=3"});
  }
  /// Under another name first: only whole files count.
  void add(int part) {
    const std::string name = "part-" + std::to_string(part);
    std::filesystem::copy_file(path("clicks-tsv") / name, path("grows") / ("." + name));
    std::filesystem::rename(path("grows") / ("." + name), path("grows") / name);
  }
  void end() { write("grows/_END", ""); }
  /// 1,000, 1,500 and 2,000 rows; batches of 64.
  static constexpr std::uint64_t kFirst = 1000 / 64, kAll = 4500 / 64;
  /// Of a run that finds all files at its start.
  std::vector<float> at_once(const Job& job) {
    for (int part : {0, 1, 2}) add(part);
    end();
    const std::vector<float> losses = train("at-once", job);
    EXPECT_EQ(losses.size(), kAll);
    std::filesystem::remove_all(path("grows"));
    std::filesystem::create_directories(path("grows"));
    return losses;
  }
};
using FollowFaultTest = FollowTest;

TEST_F(FollowTest, FilesThatComeLaterAreTrainedAsIfTheyHadBeenThere) {
  const std::vector<float> whole = at_once(job());
  add(0);
  Cluster grows(path("run"), job().with({"metrics.sample_every_seconds=0.1"}), {});
  ASSERT_TRUE(grows.worker(0).says("file 1 is")) << grows.worker(0).err();
  write("grows/.half", "half of a file");
  add(1);
  ASSERT_TRUE(grows.worker(0).says("file 2 is")) << grows.worker(0).err();
  add(2);
  end();
  grows.expect_success();
  EXPECT_EQ(losses_of(grows.steps_file(0)), whole);
}

TEST_F(FollowTest, WorkersShareTheFiles) {
  const std::vector<float> whole = at_once(job().with({"model.dropout=0"}));
  add(0);
  Cluster grows(path("run"), job().with({"model.dropout=0", "strategy.kind=ALLREDUCE"}), {2, 0});
  ASSERT_TRUE(grows.worker(0).says("file 1 is")) << grows.worker(0).err();
  add(1);
  ASSERT_TRUE(grows.worker(0).says("file 2 is")) << grows.worker(0).err();
  add(2);
  end();
  grows.expect_success();
  const std::vector<double> mean = grows.mean_losses();
  ASSERT_EQ(mean.size(), whole.size());
  for (std::size_t t = 0; t < mean.size(); ++t)
    EXPECT_NEAR(mean[t], whole[t], 2e-5 * std::abs(whole[t])) << t;
}

TEST_F(FollowFaultTest, KilledItGoesOnAtTheExactRow) {
  const auto job_in = [&](const std::string& root) { return job().with(checkpoints_in(path(root), 5)); };
  const std::vector<float> whole = at_once(job_in("whole-ckpt"));
  add(0);
  {
    Cluster killed(path("killed"), job_in("ckpt"), {});
    ASSERT_TRUE(killed.worker(0).says("checkpoint of step 10:")) << killed.worker(0).err();
    add(1);
    ASSERT_TRUE(killed.worker(0).says("checkpoint of step 25:")) << killed.worker(0).err();
    killed.worker(0).signal(SIGKILL);
    EXPECT_NE(killed.worker(0).exit_code(), 0);
  }
  const std::uint64_t reached = checkpointed_steps(path("ckpt")).back();
  Cluster last(path("last"), job_in("ckpt"), {}, {"--resume"});
  ASSERT_TRUE(last.worker(0).says("resumed at step")) << last.worker(0).err();
  add(2);
  end();
  last.expect_success();
  EXPECT_EQ(losses_of(last.steps_file(0), reached),
            std::vector<float>(whole.begin() + static_cast<std::ptrdiff_t>(reached), whole.end()));
  EXPECT_TRUE(files_of_newest(path("ckpt")) == files_of_newest(path("whole-ckpt")));
  EXPECT_THAT(last.worker(0).err(), ::testing::Not(HasSubstr("the input differs")));
}

TEST_F(FollowTest, EndsWhenNoFileComesAndWhenItIsAskedTo) {
  clicks(1);
  add(0);
  Cluster idle(path("idle"), job().with({"input.follow.idle_seconds=0.3"}), {});
  idle.expect_success();
  EXPECT_THAT(idle.worker(0).err(), HasSubstr("no new file for 0.3 s"));
  EXPECT_EQ(losses_of(idle.steps_file(0)).size(), kFirst);

  const Job saved = job().with(checkpoints_in(path("ckpt"), 1000));
  Cluster asked(path("asked"), saved, {});
  ASSERT_TRUE(asked.worker(0).says("file 1 is")) << asked.worker(0).err();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  asked.worker(0).signal(SIGTERM);
  EXPECT_EQ(asked.worker(0).exit_code(), 143) << asked.worker(0).err();
  EXPECT_EQ(checkpointed_steps(path("ckpt")), std::vector<std::uint64_t>{kFirst});
}

TEST_F(StreamingTest, OtherSettingsAreAnotherInputWhichIsRefusedUnlessItIsMeant) {
  train("run", clicks(20).with(checkpoints_in(path("ckpt"), 20)));
  const Job other = clicks(40).with({"input.stream.window_rows=64"}).with(checkpoints_in(path("ckpt"), 20));
  Cluster refused(path("refused"), other, {}, {"--resume"});
  EXPECT_THAT(refused.exit_codes(), ::testing::Each(2));
  EXPECT_THAT(refused.worker(0).err(), HasSubstr("settings of their order, are others"));
  Cluster meant(path("meant"), other, {}, {"--resume", "--accept-changes"});
  meant.expect_success();
  EXPECT_THAT(meant.worker(0).err(), HasSubstr("settings of their order, are others"));
}

TEST_F(StreamingTest, AFileThatWasCutIsNamed) {
  const Job job = clicks(2000);
  train("run", clicks(5));
  const Path part = path("clicks-tsv") / "part-1";
  std::filesystem::resize_file(part, std::filesystem::file_size(part) - 100);
  const auto cut = run("cut", job.arguments());
  EXPECT_NE(cut->wait({}), 0) << "the last line lacks fields";
  EXPECT_THAT(cut->err(), HasSubstr("part-1' line 1500"));
}

}  // namespace
}  // namespace braid::integration
