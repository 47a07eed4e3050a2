// Mixed precision in whole jobs: losses beside those of float32, steps that overflow, checkpoints that go on
// in another precision, gradients that travel as halves.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "base/files.h"
#include "tests/integration/checkpoints.h"
#include "tests/integration/http_client.h"

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

TEST_F(PrecisionTest, HalvesTravelUnderEveryCollectiveStrategyAndLearn) {
  for (const char* strategy : {"ALLREDUCE", "HYBRID"})
    for (const auto& [precision, wire] : {std::pair{"FP32", "FP16"}, {"BF16", "BF16"}, {"FP16", "FP16"}}) {
      SCOPED_TRACE(fmt::format("{}, precision {}, wire {}", strategy, precision, wire));
      const Job asked =
          PrecisionTest::job(wide_deep, precision, 100)
              .with({std::string("strategy.kind=") + strategy, std::string("strategy.wire=") + wire});
      Cluster cluster(directory() / "job", asked, {2, 0});
      cluster.expect_success();
      EXPECT_EQ(losses_of(cluster.steps_file(0)), losses_of(cluster.steps_file(1)));
      Cluster wide(
          directory() / "wide",
          PrecisionTest::job(wide_deep, "FP32", 100).with({std::string("strategy.kind=") + strategy}),
          {2, 0});
      wide.expect_success();
      const std::vector<double> got = cluster.mean_losses(), expected = wide.mean_losses();
      EXPECT_NE(got, expected);
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(got[i], expected[i], 0.03 * expected[i]) << "step " << i;
    }
}

TEST_F(PrecisionTest, HalvesTravelOverMpi) {
  if (mpirun_is_missing()) GTEST_SKIP() << "SKIPPED: there is no mpirun";
  const auto losses = [&](const std::string& backend, const std::string& name) {
    const Job asked =
        PrecisionTest::job(wide_deep, "BF16", 40)
            .with({"strategy.kind=ALLREDUCE", "strategy.wire=BF16", "strategy.backend=" + backend});
    if (backend == "RING") {
      Cluster cluster(directory() / name, asked, {2, 0});
      cluster.expect_success();
      return losses_of(cluster.steps_file(0));
    }
    const Path file = directory() / "mpi.steps";
    Process process(under_mpirun(2, asked.with({"metrics.steps_file=" + file.string() + "-%r"}).arguments()),
                    {}, directory() / name);
    EXPECT_EQ(process.exit_code(), 0) << process.err();
    for (const auto& entry : std::filesystem::directory_iterator(directory()))
      if (entry.path().filename().string().starts_with("mpi.steps")) return losses_of(entry.path());
    return std::vector<float>{};
  };
  EXPECT_EQ(losses("MPI", "mpi"), losses("RING", "ring"));
}

TEST_F(PrecisionTest, PartsOfABatchAndClippedGradientsAreScaled) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"optimizer.accumulate_steps=3"},
        {"optimizer.clip_norm=0.05"},
        {"optimizer.accumulate_steps=2", "optimizer.clip_norm=0.05"}}) {
    SCOPED_TRACE(::testing::PrintToString(more));
    const auto wide = train("wide", job(wide_deep, "FP32").with(more));
    for (const char* precision : {"BF16", "FP16"}) {
      const auto narrow = train("narrow", job(wide_deep, precision).with(more));
      ASSERT_EQ(narrow.size(), wide.size());
      EXPECT_NE(narrow, wide);
      for (std::size_t i = 0; i < wide.size(); ++i)
        ASSERT_NEAR(narrow[i], wide[i], 0.03 * wide[i]) << precision << ", step " << i;
    }
    const Job overflows =
        job(wide_deep, "FP16", 60).with(more).with({"runtime.mixed_precision.loss_scale=16777216"});
    const auto losses = train("overflows", overflows);
    EXPECT_FALSE(skipped_steps(directory() / "overflows" / "worker-0.steps").empty());
    EXPECT_LT(mean_of_last(losses, 10), losses.front());
  }
}

TEST_F(PrecisionTest, SkippedStepsAreInTheResultTheMetricsAndTheStatus) {
  const Job asked = job(mlp, "FP16", 1000000)
                        .with({"runtime.mixed_precision.loss_scale=16777216", "metrics.listen=127.0.0.1:0"});
  Cluster cluster(directory() / "job", asked, {});
  Process& worker = cluster.worker(0);
  const std::string address = metrics_address(worker);
  ASSERT_TRUE(reaches_step(worker, 50));
  const auto get = [&](const char* path) { return http_get(address, path).value_or(HttpReply{}).body; };
  EXPECT_GT(sample(get("/metrics"), "braid_skipped_steps_total").value_or(0), 0);
  EXPECT_GT(nlohmann::json::parse(get("/status.json")).value("skipped_steps", 0), 0);
  worker.signal(SIGTERM);
  EXPECT_EQ(worker.exit_code(), 143);
  const std::string out = worker.out();
  const auto result = nlohmann::json::parse(out.substr(out.rfind("result: ") + 8));
  EXPECT_EQ(result.value("skipped_steps", std::size_t{0}), skipped_steps(cluster.steps_file(0)).size());
}

TEST_F(PrecisionTest, WhatOverflowsWithAnyScaleEndsTheRun) {
  Job asked = job(wide_deep, "FP16", 1000);
  asked.set.insert(asked.set.end(), {"optimizer.learning_rate=1e6", "optimizer.kind=SGD"});
  const auto process = run("diverges", asked.arguments());
  EXPECT_NE(process->exit_code(), 0);
  EXPECT_THAT(process->err(), HasSubstr("overflowed, with any scale of the loss"));
}

TEST_F(PrecisionTest, KilledAScaledRunGoesOnWithTheSameBits) {
  struct Case {
    const char* strategy;
    Cluster::Shape shape;
  };
  for (const Case& c : {Case{"LOCAL", {}}, {"ALLREDUCE", {2, 0}}, {"HYBRID", {2, 0}}, {"PS", {1, 1}}}) {
    SCOPED_TRACE(c.strategy);
    const auto in = [&](const char* root) {
      return job(wide_deep, "FP16", 200)
          .with({std::string("strategy.kind=") + c.strategy, "runtime.mixed_precision.loss_scale_steps=7",
                 "runtime.mixed_precision.loss_scale=16777216"})
          .with(checkpoints_in(directory() / root, 20));
    };
    std::filesystem::remove_all(directory() / "whole");
    Cluster whole(directory() / "base", in("whole"), c.shape);
    whole.expect_success();
    const Values expected = values_of_newest(directory() / "whole");
    ASSERT_TRUE(expected.contains("loss_scale"));
    for (int trials = 0; trials < 20; ++trials) {
      std::filesystem::remove_all(directory() / "cut");
      Cluster killed(directory() / "killed", in("cut"), c.shape);
      EXPECT_TRUE(killed.worker(0).says("checkpoint of step 60:")) << killed.worker(0).err();
      for (int s = 0; s < c.shape.servers; ++s) killed.server(s).signal(SIGKILL);
      for (int w = 0; w < c.shape.workers; ++w) killed.worker(w).signal(SIGKILL);
      if (killed.worker(0).exit_code() != 0) break;
    }
    Cluster resumed(directory() / "resumed", in("cut"), c.shape, {"--resume"});
    resumed.expect_success();
    EXPECT_EQ(values_of_newest(directory() / "cut"), expected);
  }
}

TEST_F(PrecisionTest, RankingQualityIsThatOfFloat32) {
  const auto auc = [&](const std::string& name, const std::string& precision) {
    const auto process =
        run(precision, {"train", "--job", fmt::format("{}/examples/jobs/{}.pbtxt", BRAID_SOURCE_DIR, name),
                        "--set", "runtime.precision=" + precision, "--set", "runtime.device=CPU", "--set",
                        "runtime.intra_op_threads=1", "--set", "streams.policy=COST"});
    EXPECT_EQ(process->exit_code(), 0) << process->err();
    return result_of(*process).quality.value_or(0);
  };
  for (const char* name : {"wide_deep_generated", "mmoe_generated"}) {
    const double wide = auc(name, "FP32");
    EXPECT_GT(wide, 0.6) << name;
    for (const char* precision : {"BF16", "FP16"})
      EXPECT_NEAR(auc(name, precision), wide, 0.001) << name << ", " << precision;
  }
}

TEST_F(PrecisionTest, CheckpointsAreEvaluatedAsTheJobOrTheUserSays) {
  const Path root = directory() / "checkpoints";
  const Job trained = job(wide_deep, "BF16", 60).with(checkpoints_in(root, 60));
  train("job", trained);
  const auto evaluated = [&](const std::vector<std::string>& set, const std::string& command = "evaluate") {
    std::vector<std::string> arguments = trained.with(set).arguments();
    arguments[0] = command;
    arguments.insert(arguments.end(), {"--checkpoint", root.string()});
    const auto process = run("evaluated", arguments);
    EXPECT_EQ(process->exit_code(), 0) << process->err();
    const std::string out = process->out();
    return nlohmann::json::parse(out.substr(out.rfind("result: ") + 8));
  };
  const auto narrow = evaluated({}), wide = evaluated({"runtime.precision=FP32"});
  EXPECT_EQ(narrow.value("precision", ""), "BF16");
  EXPECT_EQ(wide.value("precision", ""), "FP32");
  EXPECT_NE(narrow.at("log_loss"), wide.at("log_loss"));
  EXPECT_NEAR(narrow.at("log_loss").get<double>(), wide.at("log_loss").get<double>(), 0.01);
}

TEST_F(PrecisionTest, WhatDoesNotGoWithItIsRefused) {
  const auto refused = [&](std::vector<std::string> set, const std::string& precision) {
    set.emplace_back("strategy.kind=ALLREDUCE");
    Cluster cluster(directory() / "refused", job(wide_deep, precision, 5).with(set), {2, 0});
    EXPECT_EQ(cluster.exit_codes(), (std::vector<int>{2, 2})) << cluster.worker(0).out();
    return cluster.worker(0).err();
  };
  for (const auto& [set, what] :
       {std::pair{std::vector<std::string>{"strategy.reduction=MEDIAN"}, "strategy.reduction MEDIAN"},
        {{"strategy.compression.kind=INT8"}, "strategy.compression"},
        {{"strategy.shard=OPTIMIZER"}, "strategy.shard"},
        {{"strategy.average_every_steps=4"}, "strategy.average_every_steps"}}) {
    SCOPED_TRACE(what);
    EXPECT_THAT(refused(set, "FP16"),
                HasSubstr(fmt::format("{} does not go with runtime.precision FP16", what)));
    auto with_wire = set;
    with_wire.emplace_back("strategy.wire=BF16");
    EXPECT_THAT(refused(with_wire, "FP32"),
                HasSubstr(fmt::format("{} does not go with strategy.wire", what)));
  }
  EXPECT_THAT(refused({"optimizer.clip_worker_norm=1"}, "FP16"),
              HasSubstr("optimizer.clip_worker_norm clips before the gradients are divided"));
  EXPECT_THAT(refused({"runtime.mixed_precision.loss_scale=0.5"}, "FP16"), HasSubstr("loss_scale"));
  EXPECT_THAT(refused({"runtime.mixed_precision.loss_scale=33554432"}, "FP16"), HasSubstr("loss_scale"));
  EXPECT_THAT(refused({"runtime.mixed_precision.keep_nodes=("}, "BF16"),
              HasSubstr("is no regular expression"));
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
