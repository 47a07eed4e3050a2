// T1 and T10 on text: the pipeline of the users' documents. Lines are read, batched and split into columns;
// the columns are staged; the step hashes one, looks its rows up, and makes text of both. Staged by hand,
// staged automatically and not at all it must give the same text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "engine/staging/auto_stage.h"
#include "engine/staging/stage_marks.h"
#include "engine/staging/staged_session.h"
#include "examples/text_pipeline/pipeline.h"
#include "proto/graph.pb.h"
#include "tests/engine/staging/stage_test_util.h"

namespace braid::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kBatch = 2;

Graph pipeline(bool with_stage) { return make_text_pipeline(kBatch, with_stage).graph; }

Tensor lines_of(std::uint64_t ticket) {
  const std::string t = std::to_string(ticket);
  const std::vector<std::string> lines{"user" + t + ",\"one, " + t + "\"",
                                       "item" + t + "," + std::string(ticket % 4, 'z')};
  return Tensor::strings({kBatch}, lines);
}

RecordSource lines_source(std::uint64_t end) {
  return {{"lines"}, [end](std::uint64_t ticket) {
            if (ticket >= end) throw OutOfRange("no more lines");
            random_delay(ticket, 300);
            Batch batch;
            batch.tensors = {lines_of(ticket)};
            return batch;
          }};
}

std::vector<std::string> strings_of(const Tensor& tensor) {
  std::vector<std::string> all;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) all.emplace_back(tensor.string_at(i));
  return all;
}

StepParams at(std::uint64_t step) {
  StepParams params;
  params.step = step;
  params.seed = 9;
  return params;
}

/// The table's first values, the same in every run.
void fill_table(Runtime& runtime) {
  Tensor& table = runtime.variables().get_or_create("table", DType::Float32, {100, 3});
  for (std::size_t i = 0; i < 300; ++i) table.data<float>()[i] = 0.5F * static_cast<float>(i) - 7.25F;
}

std::vector<std::vector<std::string>> unstaged(int steps) {
  Runtime runtime({});
  fill_table(runtime);
  StagedSession session(pipeline(false), {}, {"target"}, {"update"}, {}, {.compile = {}}, runtime);
  std::vector<std::vector<std::string>> all;
  for (std::uint64_t t = 0; t < static_cast<std::uint64_t>(steps); ++t)
    all.push_back(strings_of(session.run(at(t), {{"lines", lines_of(t)}}, soon()).fetches[0]));
  return all;
}

TEST(TextPipelineTest, GivesTheTextThatItShould) {
  const auto all = unstaged(2);
  ASSERT_EQ(all[1].size(), 12U) << "[4, 3]: two rows of numbers, two of words";
  EXPECT_THAT(std::vector(all[1].begin() + 6, all[1].end()),
              ElementsAre("one, 1", "z", "xxx", "one, 1", "z", "xxx"));
  // A row of the table is 0.5 apart, and 0.125 more in each step.
  const float first = std::stof(all[1][0]), second = std::stof(all[1][1]);
  EXPECT_FLOAT_EQ(second - first, 0.5F);
  EXPECT_NE(all[1][0], all[0][0]);
}

TEST(TextPipelineTest, T1_StagedItGivesTheTextOfTheUnstagedRun) {
  const auto expected = unstaged(30);
  Runtime runtime({});
  fill_table(runtime);
  const Graph graph = pipeline(true);
  StagedSession session(graph, stages_of(graph), {"target"}, {"update"}, {lines_source(30)}, {.compile = {}},
                        runtime);
  const PrefetchHook hook(session);
  for (std::uint64_t t = 0; t < 30; ++t)
    ASSERT_EQ(strings_of(session.run(at(t), {}, soon()).fetches[0]), expected[t]) << "step " << t;
  EXPECT_THROW(session.run(at(30), {}, soon()), OutOfRange);
}

TEST(TextPipelineTest, T10_AutoStageLeavesMarkedTargetsAndStateToTheStep) {
  const auto expected = unstaged(20);
  const Graph graph = pipeline(false);
  const AutoStageResult found = auto_stage(
      graph, {.records = {"lines"}, .keep = {"words"}, .fetches = {"target"}, .targets = {"update"}});
  ASSERT_TRUE(found.stage);
  std::vector<std::string> crossing;
  for (const ValueRef value : found.stage->outputs) crossing.push_back(graph.value_name(value));
  EXPECT_THAT(crossing, ::testing::UnorderedElementsAre("ids", "decode_csv:1", "decode_csv"))
      << "hashing needs no state; a node's values cross together";
  Runtime runtime({});
  fill_table(runtime);
  StagedSession session(graph, {*found.stage}, {"target"}, {"update"}, {lines_source(20)}, {.compile = {}},
                        runtime);
  const PrefetchHook hook(session);
  for (std::uint64_t t = 0; t < 20; ++t)
    ASSERT_EQ(strings_of(session.run(at(t), {}, soon()).fetches[0]), expected[t]) << "step " << t;
}

TEST(TextPipelineTest, AStageMakesTextOfWhatItComputesAndComputesWithIt) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Int64, {3});
  const Output parts = b.op("Unpack", {b.add(x, b.constant(Tensor::scalar<std::int64_t>(1)))},
                            {{"num", std::int64_t{3}}, {"axis", std::int64_t{0}}}, "parts");
  const Output word = b.op("AsString", {Output{parts.node, 2}}, {}, "word");
  const Output id = b.op("StringToHashBucketFast", {word}, {{"num_buckets", std::int64_t{50}}}, "id");
  const Output again = b.op("AsString", {b.add(id, parts)}, {}, "again");
  const Output out = staged(b, Nested<Output>::list({again, id, word}), {.num_threads = 2})[0].leaf();
  const Graph graph = import_graph(b.graph());
  const auto record = [](std::uint64_t t) {
    Batch batch;
    const std::vector<std::int64_t> values{static_cast<std::int64_t>(t), 5, static_cast<std::int64_t>(3 * t)};
    batch.tensors = {Tensor::from<std::int64_t>({3}, values)};
    return batch;
  };
  Runtime runtime({});
  StagedSession session(graph, stages_of(graph), {out.name(), "stage_1", "stage_2"}, {}, {{{"x"}, record}},
                        {.compile = {}}, runtime);
  const PrefetchHook hook(session);
  for (std::int64_t t = 0; t < 20; ++t) {
    const StepResult got = session.run(at(static_cast<std::uint64_t>(t)), {}, soon());
    EXPECT_EQ(got.fetches[2].string_at(0), std::to_string(3 * t + 1));
    EXPECT_EQ(got.fetches[0].string_at(0), std::to_string(got.fetches[1].data<std::int64_t>()[0] + t + 1));
  }
}

TEST(TextPipelineTest, ALineThatCannotBeSplitReachesTheStepWithItsNode) {
  Runtime runtime({});
  fill_table(runtime);
  const Graph graph = pipeline(true);
  RecordSource source = lines_source(10);
  source.read = [read = source.read](std::uint64_t ticket) {
    Batch batch = read(ticket);
    const std::vector<std::string> bad{"a,b", "only one"};
    if (ticket == 3) batch.tensors = {Tensor::strings({kBatch}, bad)};
    return batch;
  };
  StagedSession session(graph, stages_of(graph), {"target"}, {}, {source}, {.compile = {}}, runtime);
  const PrefetchHook hook(session);
  for (std::uint64_t t = 0; t < 3; ++t) EXPECT_NO_THROW(session.run(at(t), {}, soon()));
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { session.run(at(3), {}, soon()); }),
      ::testing::AllOf(HasSubstr("[DecodeCSV] node 'decode_csv'"), HasSubstr("record 1 has 1 fields")));
}

}  // namespace
}  // namespace braid::testing
