// Mixed precision in whole jobs: losses beside those of float32, steps that overflow, checkpoints that go on
// in another precision, gradients that travel as halves.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using ::testing::HasSubstr;

class PrecisionTest : public IntegrationTest {
 protected:
  static Job job(Job (*which)(), const std::string& precision, int steps = 200) {
    return which().with({"steps=" + std::to_string(steps), "optimizer.kind=ADAM",
                         "optimizer.learning_rate=0.001", "streams.policy=COST",
                         "runtime.precision=" + precision});
  }
};

double mean_of_last(const std::vector<float>& losses, std::size_t count) {
  double sum = 0;
  for (std::size_t i = losses.size() - count; i < losses.size(); ++i) sum += losses[i];
  return sum / static_cast<double>(count);
}

/// Lines of a steps file that say so.
std::vector<std::uint64_t> skipped_steps(const Path& file) {
  std::vector<std::uint64_t> skipped;
  std::ifstream in(file);
  std::uint64_t step = 0;
  for (std::string line; std::getline(in, line); ++step)
    if (line.find("\"skipped\":true") != std::string::npos) skipped.push_back(step);
  return skipped;
}

TEST_F(PrecisionTest, ModelsLearnAsInFloat32) {
  for (Job (*which)() : {mlp, wide_deep, cnn}) {
    const std::vector<float> wide = train("fp32", job(which, "FP32"));
    for (const char* precision : {"BF16", "FP16"}) {
      const std::vector<float> narrow = train(precision, job(which, precision));
      ASSERT_EQ(narrow.size(), wide.size());
      EXPECT_NE(narrow, wide);
      EXPECT_NEAR(mean_of_last(narrow, 50), mean_of_last(wide, 50), 0.02 * mean_of_last(wide, 50) + 2e-3)
          << precision;
    }
  }
}

TEST_F(PrecisionTest, Tf32AndFp32AreOneOnTheCpu) {
  EXPECT_EQ(train("fp32", job(mlp, "FP32", 20)), train("tf32", job(mlp, "TF32", 20)));
}

TEST_F(PrecisionTest, ARunOfOnePrecisionGoesOnInAnother) {
  const auto in = [&](const std::string& precision, int steps) {
    return job(wide_deep, precision, steps).with(checkpoints_in(directory() / "checkpoints", 20));
  };
  for (const auto& [first, second] :
       {std::pair{"BF16", "FP32"}, {"FP32", "BF16"}, {"FP16", "FP32"}, {"FP32", "FP16"}}) {
    SCOPED_TRACE(std::string(first) + " to " + second);
    std::filesystem::remove_all(directory() / "checkpoints");
    const std::vector<float> begun = train("first", in(first, 60));
    Cluster resumed(directory() / "second", in(second, 120), {}, {"--resume"});
    resumed.expect_success();
    const std::vector<float> losses = losses_of(resumed.steps_file(0), 60);
    ASSERT_EQ(losses.size(), 60U);
    EXPECT_LT(mean_of_last(losses, 30), mean_of_last(begun, 30));
    for (const auto& [name, values] : values_of_newest(directory() / "checkpoints"))
      EXPECT_FALSE(values.empty()) << name;
  }
}

TEST_F(PrecisionTest, StepsThatOverflowUpdateNothingAndAreCounted) {
  // A scale of 2^24 overflows at once, and is halved until it does not.
  const Job job = PrecisionTest::job(mlp, "FP16", 40)
                      .with({"runtime.mixed_precision.loss_scale=16777216"})
                      .with(checkpoints_in(directory() / "checkpoints", 1))
                      .with({"checkpoint.keep=100"});
  train("job", job);
  const std::vector<std::uint64_t> skipped = skipped_steps(directory() / "job" / "worker-0.steps");
  ASSERT_FALSE(skipped.empty());
  EXPECT_EQ(skipped.front(), 0U);
  EXPECT_LT(skipped.size(), 20U) << "a smaller scale does";
  const Values last = values_of_newest(directory() / "checkpoints");
  EXPECT_EQ(last.at("loss_scale/skipped_steps"), (std::vector<float>{static_cast<float>(skipped.size())}));
  EXPECT_EQ(last.at("loss_scale")[0], std::ldexp(1.0F, 24 - static_cast<int>(skipped.size())));
}

TEST_F(PrecisionTest, AScaledRunResumesToTheSameBits) {
  const auto in = [&](const Path& root, int steps) {
    return job(wide_deep, "FP16", steps)
        .with({"runtime.mixed_precision.loss_scale_steps=7", "runtime.mixed_precision.loss_scale=1048576"})
        .with(checkpoints_in(root, 20));
  };
  const std::vector<float> base = train("base", in(directory() / "base", 80));
  train("first", in(directory() / "cut", 40));
  Cluster resumed(directory() / "resumed", in(directory() / "cut", 80), {}, {"--resume"});
  resumed.expect_success();
  EXPECT_EQ(losses_of(resumed.steps_file(0), 40), std::vector<float>(base.begin() + 40, base.end()));
  EXPECT_EQ(values_of_newest(directory() / "cut"), values_of_newest(directory() / "base"));
}

TEST_F(PrecisionTest, AllWorkersSkipTheSameSteps) {
  const Job job = PrecisionTest::job(mlp, "FP16", 40)
                      .with({"runtime.mixed_precision.loss_scale=16777216", "strategy.kind=ALLREDUCE"});
  Cluster cluster(directory() / "job", job, {2, 0});
  cluster.expect_success();
  const std::vector<std::uint64_t> first = skipped_steps(cluster.steps_file(0));
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(first, skipped_steps(cluster.steps_file(1)));
}

TEST_F(PrecisionTest, WorkersOfServersDropWhatOverflows) {
  const Job job = PrecisionTest::job(wide_deep, "FP16", 60)
                      .with({"runtime.mixed_precision.loss_scale=16777216", "strategy.kind=PS"});
  Cluster cluster(directory() / "job", job, {2, 1});
  cluster.expect_success();
  const std::vector<double> losses = cluster.mean_losses();
  EXPECT_LT(losses.back(), losses.front());
  for (const double loss : losses) EXPECT_TRUE(std::isfinite(loss));
}

TEST_F(PrecisionTest, HybridWorkersAgree) {
  const Job job = PrecisionTest::job(wide_deep, "FP16", 40)
                      .with({"runtime.mixed_precision.loss_scale=16777216", "strategy.kind=HYBRID"});
  Cluster cluster(directory() / "job", job, {2, 0});
  cluster.expect_success();
  const std::vector<std::uint64_t> first = skipped_steps(cluster.steps_file(0));
  EXPECT_EQ(first, skipped_steps(cluster.steps_file(1)));
  EXPECT_LT(cluster.mean_losses().back(), cluster.mean_losses().front());
}

TEST_F(PrecisionTest, GradientsMayTravelAsHalves) {
  for (const int workers : {2, 3, 4}) {
    const Job job =
        PrecisionTest::job(wide_deep, "FP32", 100)
            .with({"strategy.kind=ALLREDUCE", "input.global_batch_size=" + std::to_string(12 * workers)});
    const auto mean_losses = [&](const std::string& wire) {
      Cluster cluster(directory() / (wire + std::to_string(workers)), job.with({"strategy.wire=" + wire}),
                      {workers, 0});
      cluster.expect_success();
      for (int w = 1; w < workers; ++w)
        EXPECT_EQ(losses_of(cluster.steps_file(0)), losses_of(cluster.steps_file(w)));
      return cluster.mean_losses();
    };
    const std::vector<double> wide = mean_losses("FP32"), narrow = mean_losses("BF16");
    EXPECT_NE(wide, narrow);
    for (std::size_t i = 0; i < wide.size(); ++i)
      EXPECT_NEAR(narrow[i], wide[i], 0.03 * wide[i]) << workers << " workers, step " << i;
  }
}

TEST_F(PrecisionTest, WhatStaysFloat32IsSaid) {
  const auto process =
      run("plan", {"graph", "plan", "--job", BRAID_SOURCE_DIR "/examples/jobs/wide_deep_generated.pbtxt",
                   "--set", "runtime.precision=BF16", "--set", "runtime.mixed_precision.keep_ops=MatMul"});
  EXPECT_EQ(process->exit_code(), 0) << process->err();
  EXPECT_THAT(process->out(), HasSubstr("products run on bfloat16"));
  EXPECT_THAT(process->out(), HasSubstr("as the job asks: MatMul"));
}

}  // namespace
}  // namespace braid::integration
