// Pipelines of graphs that are hard to cut: values that skip stages, variables that stages share, device
// scopes, random graphs with random cuts; and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/message_of.h"
#include "tests/worker/strategies/pipeline_runs.h"

namespace braid::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Output layer(GraphBuilder& b, const std::string& name, const Output& x, std::int64_t in = 8,
             std::int64_t out = 8) {
  return b.dense(name, x, in, out, true);
}

Output sum(GraphBuilder& b, const Output& a, const Output& c) { return b.op("AddV2", {a, c}, {}, "sum"); }

void expect_as_local(const std::string& text, const Settings& settings, int world, int parts,
                     const char* schedule = "ONE_F_ONE_B") {
  const auto rows = made_vectors(48);
  const RankRun local = run_leader(job_with(text, accumulated(parts)), 1, rows);
  const RankRun cut = run_pipeline(job_with(text, pipelined(parts, schedule) + settings), world, rows);
  ASSERT_FALSE(local.losses.empty());
  EXPECT_EQ(cut.losses, local.losses);
  EXPECT_EQ(cut.values, local.values);
}

TEST(PipelineGraphsTest, AResidualSkipsAStage) {
  GraphJob job;
  const Output a = layer(job.b, "a", job.x), c = layer(job.b, "b", a), d = layer(job.b, "c", c);
  const std::string text = job.text(layer(job.b, "d", sum(job.b, a, d)), 10);
  for (const char* schedule : {"ONE_F_ONE_B", "GPIPE"})
    expect_as_local(text, stages({"a/.*", "b/.*", "c/.*", "d/.*"}), 4, 4, schedule);
}

TEST(PipelineGraphsTest, AValueOfAVariableGoesToOtherStagesAndItsGradientComesBack) {
  GraphJob job;
  const Output tied =
      job.b.read(job.b.variable("tied", Shape{8, 8}, {.init = {InitKind::Uniform, -0.4F, 0.4F}}));
  const Output first = job.b.matmul(job.x, tied);
  const Output second = layer(job.b, "b", first);
  const Output third = job.b.op("MatMul", {second, tied}, {{"transpose_b", true}}, "last");
  const std::string text = job.text(third, 10);
  expect_as_local(text, stages({"tied", "b/.*", "last"}), 3, 4);
}

TEST(PipelineGraphsTest, DeviceScopesOfTasksAreStages) {
  GraphJob job;
  Output a, c;
  {
    DeviceScope scope(job.b, "/job:worker/task:0");
    a = layer(job.b, "a", job.x);
  }
  {
    DeviceScope scope(job.b, "/job:worker/task:1/cpu:0");
    c = layer(job.b, "b", a);
  }
  const std::string text = job.text(c, 10);
  expect_as_local(text, {}, 2, 3);
  const auto runs = run_ranks(job_with(text, pipelined(3)), 2, made_vectors(48));
  EXPECT_TRUE(runs[0].values.contains("a/kernel"));
  EXPECT_TRUE(runs[0].values.contains("b/kernel")) << "the leader has been given it behind the last step";
  EXPECT_TRUE(runs[1].values.contains("b/kernel"));
  EXPECT_FALSE(runs[1].values.contains("a/kernel"));
  EXPECT_THAT(error_of_pipeline(job_with(text, pipelined(1)), 1, made_vectors(48)),
              HasSubstr("there are 1 workers"));
}

TEST(PipelineGraphsTest, ClippingIsByTheNormOfAllStages) {
  GraphJob job;
  const Output a = layer(job.b, "a", job.x), c = layer(job.b, "b", a);
  const std::string text = job.text(layer(job.b, "c", c), 10);
  const auto rows = made_vectors(48);
  const Settings clip{"optimizer.clip_norm=0.01"};
  const RankRun local = run_leader(job_with(text, accumulated(4) + clip), 1, rows);
  EXPECT_NE(local.values, run_leader(job_with(text, accumulated(4)), 1, rows).values);
  for (const int world : {1, 2, 3})
    EXPECT_EQ(run_pipeline(job_with(text, pipelined(4) + clip), world, rows).values, local.values);
}

/// Layers in a line, each of which reads the one before it and maybe an earlier one, cut anywhere.
TEST(PipelineGraphsTest, RandomGraphsWithRandomCutsAreThoseOfOneProcess) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const int layers = 3 + static_cast<int>(random() % 5);
    const int world = 2 + static_cast<int>(random() % 3);
    if (world > layers) continue;
    GraphJob job;
    std::vector<Output> made{job.x};
    for (int l = 0; l < layers; ++l) {
      const std::string name = "n" + std::to_string(l);
      Output value = made.back();
      if (random() % 2) value = sum(job.b, value, made[random() % made.size()]);
      switch (random() % 4) {
        case 0:
          value = job.b.op("Tanh", {layer(job.b, name, value)}, {}, name + "/tanh");
          break;
        case 1:
          value =
              job.b.op("Mul", {layer(job.b, name, value), made[random() % made.size()]}, {}, name + "/mul");
          break;
        case 2:
          value = job.b.op("braid.Dropout", {layer(job.b, name, value)}, {{"rate", 0.2}}, name + "/dropout");
          break;
        default:
          value = layer(job.b, name, value);
      }
      made.push_back(value);
    }
    std::vector<int> ends;
    while (std::ssize(ends) + 1 < world) {
      const int end = 1 + static_cast<int>(random() % static_cast<unsigned>(layers - 1));
      if (std::find(ends.begin(), ends.end(), end) == ends.end()) ends.push_back(end);
    }
    std::sort(ends.begin(), ends.end());
    ends.push_back(layers);
    std::vector<std::string> patterns;
    int begin = 0;
    for (const int end : ends) {
      std::string pattern = "(";
      for (; begin < end; ++begin) pattern += (pattern.size() > 1 ? "|n" : "n") + std::to_string(begin);
      patterns.push_back(pattern + ")/.*");
    }
    const int parts[] = {1, 2, 3, 4, 6};
    expect_as_local(job.text(made.back(), 2), stages(patterns), world, parts[random() % 5],
                    random() % 2 ? "GPIPE" : "ONE_F_ONE_B");
    if (HasFailure()) return;
  }
}

std::string refused(const std::string& text, const Settings& settings, int world) {
  return error_of_pipeline(job_with(text, pipelined(4) + settings), world, made_vectors(48));
}

TEST(PipelineGraphsTest, CutsThatCannotBeAreRefusedByName) {
  GraphJob job;
  const Output a = layer(job.b, "a", job.x), c = layer(job.b, "b", a);
  const std::string text = job.text(c, 2);
  EXPECT_THAT(refused(text, stages({"a/.*"}), 2), HasSubstr("1 stages for 2 workers"));
  EXPECT_THAT(refused(text, stages({"a/.*", "("}), 2), HasSubstr("strategy.pipeline.stage[1].match '('"));
  EXPECT_THAT(refused(text, stages({"a/.*", "z/.*"}), 2), HasSubstr("'z/.*' fits no variable and no node"));
  EXPECT_THAT(refused(text, stages({"b/.*", "a/.*"}), 2), HasSubstr("a stage reads what is before it"));
  EXPECT_THAT(refused(text, {}, 16), HasSubstr("cannot be cut into 16 stages"));
}

TEST(PipelineGraphsTest, ATableThatTwoStagesLookIntoIsRefusedByName) {
  GraphJob job;
  const Output table =
      job.b.variable("table", Shape{4, 8}, {.init = {InitKind::Uniform, -1, 1}, .sparse = true});
  const Output ids = job.b.op("Cast", {job.b.placeholder("y", DType::Float32, {-1})},
                              {{"SrcT", DType::Float32}, {"DstT", DType::Int64}}, "ids");
  const auto gather = [&](const char* name) {
    return job.b.op("ResourceGather", {table, ids}, {{"dtype", DType::Float32}, {"Tindices", DType::Int64}},
                    name);
  };
  const Output a = layer(job.b, "a", sum(job.b, job.x, gather("first")));
  const std::string text = job.text(layer(job.b, "b", sum(job.b, a, gather("second"))), 2);
  EXPECT_THAT(
      refused(text, stages({"a/.*|table|first", "b/.*|second"}), 2),
      AllOf(HasSubstr("variable 'table' is on stage 0"), HasSubstr("'second' on stage 1 looks into it")));
  // Both on one stage; the cost model keeps them together too.
  expect_as_local(text, stages({"a/.*|table|first|second", "b/.*"}), 2, 4);
  expect_as_local(text, {}, 2, 4);
}

std::string not_taken(const std::string& text, const Settings& settings) {
  return message_of([&] { job_with(text, pipelined(4) + settings); });
}

TEST(PipelineGraphsTest, WhatDoesNotGoWithItIsSaid) {
  GraphJob job;
  const std::string text = job.text(layer(job.b, "a", job.x), 2);
  EXPECT_THAT(not_taken(text, {"input.global_batch_size=18"}),
              HasSubstr("micro_batches is 4: a batch of 18 rows"));
  EXPECT_THAT(not_taken(text, {"optimizer.accumulate_steps=2"}), HasSubstr("optimizer.accumulate_steps"));
  EXPECT_THAT(not_taken(text, {"optimizer.clip_worker_norm=1"}), HasSubstr("use optimizer.clip_norm"));
  EXPECT_THAT(not_taken(text, {"input.shard=ROWS"}), HasSubstr("all workers read the same rows"));
  EXPECT_THAT(not_taken(text, {"runtime.precision=FP16"}), HasSubstr("use BF16"));
  EXPECT_THAT(not_taken(text, {"staging.auto_stage=true"}), HasSubstr("staging.auto_stage"));
  EXPECT_THAT(not_taken(text, {"streams.count=2", "streams.policy=AUTO", "streams.measure=true"}),
              HasSubstr("streams.measure"));
  EXPECT_THAT(not_taken(text, {"runtime.recompute.memory_bytes=1000"}), HasSubstr("runtime.recompute.scope"));
  EXPECT_THAT(not_taken(text, {"checkpoint.directory=x", "checkpoint.every_seconds=3"}),
              HasSubstr("checkpoint.every_steps"));
  EXPECT_THAT(not_taken(text, {"strategy.pipeline.stage=match: ''"}),
              HasSubstr("strategy.pipeline.stage[0].match is missing"));
}

}  // namespace
}  // namespace braid::worker
