// ADAFACTOR and ADAM_8BIT in whole runs: what they learn, workers, checkpoints under other strategies, and
// what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/methods/ranks.h"

namespace braid::worker {
namespace {

using ::testing::HasSubstr;

/// The second layer's kernel has 8192 elements: moments of 8 bits.
const std::vector<std::string> kWide{"model.hidden=64,128"};

proto::Job job_of(const std::string& kind, int steps, std::vector<std::string> set = {}) {
  std::string text = wide_deep_job(steps);
  const std::string adam = "kind: ADAM";
  // Tables have an optimizer that updates rows.
  const std::string group = kind == "ADAFACTOR" ? " group { match: '.*/table' kind: ADAM }" : "";
  text.replace(text.find(adam), adam.size(), "kind: " + kind + group);
  set.insert(set.begin(), kWide.begin(), kWide.end());
  return job_with(text, set);
}

float mean_of_last(const RankRun& run) {
  return std::accumulate(run.losses.end() - 8, run.losses.end(), 0.0F) / 8;
}

class SmallStatesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SmallStatesTest, LearnsAsAdamDoes) {
  const auto rows = made_rows(96);
  const std::vector<std::string> rate{std::string(GetParam()) == "ADAFACTOR"
                                          ? "optimizer.learning_rate=0.05"
                                          : "optimizer.learning_rate=0.01"};
  const RankRun small = run_leader(job_of(GetParam(), 80, rate), 1, rows),
                adam = run_leader(job_of("ADAM", 80), 1, rows);
  EXPECT_LT(mean_of_last(small), 0.6F * small.losses.front());
  EXPECT_NEAR(mean_of_last(small), mean_of_last(adam), 0.15F);
  EXPECT_NE(small.losses.back(), adam.losses.back()) << "it is another algorithm";
}

TEST_P(SmallStatesTest, WorkersLearnAsOne) {
  const auto rows = made_rows(96);
  const RankRun alone = run_leader(job_of(GetParam(), 8), 1, rows);
  for (const char* strategy : {"ALLREDUCE", "HYBRID"}) {
    SCOPED_TRACE(strategy);
    const RankRun several =
        run_leader(job_of(GetParam(), 8, {std::string("strategy.kind=") + strategy}), 2, rows);
    ASSERT_EQ(several.error, "");
    ASSERT_EQ(several.losses.size(), alone.losses.size());
    // A sum in another order can be another code.
    for (std::size_t t = 0; t < alone.losses.size(); ++t)
      EXPECT_NEAR(several.losses[t], alone.losses[t], 1e-3F);
  }
}

TEST_P(SmallStatesTest, StrategiesReadEachOthersCheckpoints) {
  const std::string strategies[] = {"ALLREDUCE", "HYBRID", "LOCAL", "MIRRORED", "PIPELINE"};
  const auto rows = made_rows(96);
  const auto run = [&](const std::string& strategy, int steps, std::vector<std::string> set, RunStart start) {
    set.push_back("strategy.kind=" + strategy);
    if (strategy == "PIPELINE") set.push_back("strategy.pipeline.micro_batches=2");
    return run_leader(job_of(GetParam(), steps, set), strategy == "LOCAL" ? 1 : 2, rows, start);
  };
  RankRun expected = run("ALLREDUCE", 12, {}, RunStart::New);
  expected.losses.erase(expected.losses.begin(), expected.losses.begin() + 6);
  for (const std::string& writer : strategies)
    for (const std::string& reader : strategies) {
      SCOPED_TRACE(writer + " writes, " + reader + " reads");
      TempDir directory;
      const std::vector<std::string> saved{"checkpoint.every_steps=6",
                                           "checkpoint.directory=" + directory.path().string()};
      run(writer, 6, saved, RunStart::New);
      const RankRun rest = run(reader, 12, saved, RunStart::Resume);
      ASSERT_EQ(rest.losses.size(), expected.losses.size());
      for (std::size_t t = 0; t < expected.losses.size(); ++t)
        EXPECT_NEAR(rest.losses[t], expected.losses[t], 1e-3F) << t;
      if (writer == "ALLREDUCE" && reader == writer) expect_equal(rest, expected);
    }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SmallStatesTest, ::testing::Values("ADAFACTOR", "ADAM_8BIT"),
                         [](const auto& info) { return std::string(info.param); });

TEST(SmallStatesSizes, StatesHaveTheirSizes) {
  const auto rows = made_rows(48);
  const RankRun factors = run_leader(job_of("ADAFACTOR", 2), 1, rows);
  const auto kernel = std::ranges::find_if(factors.values, [](const auto& value) {
    return value.first.ends_with("kernel") && value.second.size() == 64 * 128;
  });
  ASSERT_NE(kernel, factors.values.end());
  EXPECT_EQ(factors.values.at(kernel->first + "/row").size(), 64U);
  EXPECT_EQ(factors.values.at(kernel->first + "/column").size(), 128U);
  EXPECT_FALSE(factors.values.contains(kernel->first + "/m"));
  const RankRun codes = run_leader(job_of("ADAM_8BIT", 2), 1, rows);
  EXPECT_EQ(codes.values.at(kernel->first + "/m_scale").size(), 32U);
  EXPECT_FALSE(codes.values.contains(kernel->first + "/m")) << "which is no float32";
  for (const auto& [name, values] : codes.values) {
    if (!name.ends_with("/table")) continue;
    EXPECT_EQ(codes.values.at(name + "/m").size(), values.size()) << name;
  }
}

TEST(SmallStatesRefusals, NameWhatDoesNotGoTogether) {
  const auto refusal = [](const std::string& kind, std::vector<std::string> set) {
    return message_of([&] { job_of(kind, 4, set); });
  };
  for (const char* kind : {"ADAFACTOR", "ADAM_8BIT"}) {
    EXPECT_THAT(refusal(kind, {"strategy.kind=PS"}), HasSubstr("does not go with strategy.kind PS"));
    EXPECT_THAT(refusal(kind, {"strategy.kind=TENSOR"}), HasSubstr("does not go with strategy.kind TENSOR"));
    EXPECT_THAT(refusal(kind, {"strategy.kind=ALLREDUCE", "strategy.shard=OPTIMIZER"}),
                HasSubstr("does not go with strategy.shard"));
  }
  EXPECT_THAT(refusal("ADAM_8BIT", {"strategy.kind=ALLREDUCE", "strategy.average_every_steps=2"}),
              HasSubstr("have no mean"));
  EXPECT_THAT(refusal("ADAFACTOR", {"optimizer.l2=0.1"}), HasSubstr("clip_value, l1 and l2"));
  std::string text = wide_deep_job(2);
  text.replace(text.find("kind: ADAM"), 10, "kind: ADAFACTOR");
  EXPECT_THAT(run_ranks(job_with(text, {}), 1, made_rows(48))[0].error,
              HasSubstr("is updated by rows, and optimizer.kind ADAFACTOR needs all of a variable"));
}

}  // namespace
}  // namespace braid::worker
