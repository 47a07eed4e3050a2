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

TEST_F(StreamingTest, OtherSettingsAreAnotherInputWhichIsSaid) {
  train("run", clicks(20).with(checkpoints_in(path("ckpt"), 20)));
  Cluster other(path("other"),
                clicks(40).with({"input.stream.window_rows=64"}).with(checkpoints_in(path("ckpt"), 20)), {},
                {"--resume"});
  other.expect_success();
  EXPECT_THAT(other.worker(0).err(), HasSubstr("the input differs from the checkpoint's"));
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
