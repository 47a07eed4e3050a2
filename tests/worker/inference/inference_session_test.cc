// Requests over stream groups: the same answers, one copy of the weights, limits and refusals.
#include "worker/inference/inference_session.h"

#include <gmock/gmock.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "base/formats/npy.h"
#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "worker/inference/inference_inputs.h"
#include "worker/inference/request_load.h"

namespace braid::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;

WaitContext soon() { return WaitContext::with_timeout(std::chrono::seconds(60)); }

/// Variables begin as their nodes say.
InferenceOptions untrained() {
  InferenceOptions options;
  options.untrained = true;
  return options;
}

/// Two branches of two layers over a variable and a constant, joined; [B, 16] f32 -> [B, 16] f32.
Graph two_branches() {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, Shape{Shape::kUnknown, 16});
  std::vector<float> numbers(256);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = 0.01F * static_cast<float>(i % 37) - 0.15F;
  const Output constant = b.constant(Tensor::from<float>(Shape{16, 16}, numbers), "weights");
  const Output variable = b.read(b.variable("v", Shape{16, 16}, {.init = {InitKind::Normal, 0, 0.3F}}));
  Output left = x, right = x;
  for (int layer = 0; layer < 2; ++layer) {
    left = b.op("Relu", {b.matmul(left, constant)});
    StreamScope scope(b, 1);
    right = b.op("Relu", {b.matmul(right, variable)});
  }
  b.op("AddV2", {left, right}, {}, "y");
  return import_graph(b.graph());
}

std::vector<std::vector<Tensor>> batches(std::initializer_list<std::int64_t> sizes) {
  std::vector<std::vector<Tensor>> feeds;
  for (const std::int64_t rows : sizes) {
    Tensor x(DType::Float32, Shape{rows, 16});
    for (std::int64_t i = 0; i < x.elements(); ++i)
      x.data<float>()[static_cast<std::size_t>(i)] = static_cast<float>((i * 7 + rows) % 13) - 6;
    feeds.push_back({x});
  }
  return feeds;
}

TEST(InferenceSessionTest, VariablesWithoutValuesAreRefusedUnlessAskedFor) {
  Runtime runtime({.intra_op_threads = 1});
  EXPECT_THAT(message_of([&] { InferenceSession(two_branches(), {"x"}, {"y"}, {}, runtime); }),
              AllOf(HasSubstr("1 variable has no value: 'v'"), HasSubstr("untrained")));
  runtime.variables().get_or_create("v", DType::Float32, Shape{16, 16});
  InferenceSession session(two_branches(), {"x"}, {"y"}, {}, runtime);
  EXPECT_EQ(session.run({batches({2})[0]}, soon()).size(), 1U);
}

TEST(InferenceSessionTest, AnswersEqualASingleGroupsBitByBit) {
  const auto feeds = batches({3, 8, 3, 1});
  Runtime runtime({.intra_op_threads = 1});
  InferenceSession single(two_branches(), {"x"}, {"y"}, untrained(), runtime);
  std::vector<std::vector<Tensor>> expected;
  for (const auto& feed : feeds) expected.push_back(single.run({feed}, soon()));
  for (const int streams : {1, 2})
    for (const LaunchThreads launch : {LaunchThreads::Pools, LaunchThreads::Private, LaunchThreads::Shared}) {
      InferenceOptions options = untrained();
      options.groups = 4;
      options.launch = launch;
      options.compile.streams.count = streams;
      options.compile.streams.policy = streams == 1 ? StreamPolicy::Auto : StreamPolicy::User;
      InferenceSession session(two_branches(), {"x"}, {"y"}, options, runtime);
      const LoadResult result = run_load(session, feeds, {.clients = 6, .requests = 50}, expected);
      EXPECT_EQ(result.answered(), 300U);
      EXPECT_EQ(result.different, 0U);
      for (const auto& group : result.groups) EXPECT_GT(group.requests, 0U);
    }
  EXPECT_THAT(runtime.variables().names(), testing::ElementsAre("v"));  // one copy for all of them
}

TEST(InferenceSessionTest, VariablesThatHaveAValueKeepIt) {
  Runtime runtime({.intra_op_threads = 1});
  runtime.variables().get_or_create("v", DType::Float32, Shape{16, 16});  // zeros
  InferenceSession session(two_branches(), {"x"}, {"y"}, untrained(), runtime);
  session.run({batches({2})[0]}, soon());
  EXPECT_EQ(runtime.variables().find("v")->data<float>()[5], 0.0F);
}

/// Four towers of two small layers each over variables of their own, joined; [B, 16] f32 -> [B, 64] f32.
Graph four_towers() {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, Shape{Shape::kUnknown, 16});
  std::vector<Output> tops;
  for (int tower = 0; tower < 4; ++tower) {
    NameScope name(b, "tower" + std::to_string(tower));
    tops.push_back(b.dense("second", b.dense("first", x, 16, 16, true), 16, 16, true));
  }
  b.op("Identity", {b.concat(tops, 1)}, {}, "y");
  return import_graph(b.graph());
}

void expect_near(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  for (std::size_t i = 0; i < static_cast<std::size_t>(a.elements()); ++i)
    ASSERT_NEAR(a.data<float>()[i], b.data<float>()[i], 1e-5F) << i;
}

TEST(InferenceSessionTest, SiblingsAreBatchedForEverySizeOfRequestOverOneCopyOfTheirVariables) {
  InferenceOptions apart = untrained();
  apart.compile.batch_siblings = BatchSiblings::Off;
  apart.seed = 3;
  InferenceOptions batched = untrained();
  batched.seed = 3;
  batched.groups = 2;
  Runtime first({.intra_op_threads = 1}), second({.intra_op_threads = 1});
  InferenceSession expected(four_towers(), {"x"}, {"y"}, apart, first);
  InferenceSession session(four_towers(), {"x"}, {"y"}, batched, second);
  // Of these sizes the larger ones do not gain by it.
  for (const auto& feed : batches({4, 2048, 1, 512, 4})) {
    const Tensor answer = session.run({feed}, soon())[0];
    expect_near(answer, expected.run({feed}, soon())[0]);
    const char* decision = feed[0].shape()[0] == 2048 ? "horizontal_fusion: no siblings" : "nodes became";
    if (feed[0].shape()[0] != 512) {
      EXPECT_THAT(session.program()->notes,
                  testing::Contains(testing::ResultOf([](const Note& note) { return to_string(note); },
                                                      HasSubstr(decision))));
    }
  }
  EXPECT_EQ(second.variables().names(), first.variables().names());
}

TEST(InferenceSessionTest, VariablesThatDoNotLieInABatchAreTakenAsTheyAre) {
  Runtime runtime({.intra_op_threads = 1});
  InferenceOptions apart = untrained();
  apart.compile.batch_siblings = BatchSiblings::Off;
  InferenceSession first(four_towers(), {"x"}, {"y"}, apart, runtime);
  InferenceSession second(four_towers(), {"x"}, {"y"}, untrained(), runtime);
  const auto feed = batches({4})[0];
  const Tensor expected = first.run({feed}, soon())[0], answer = second.run({feed}, soon())[0];
  expect_near(answer, expected);
}

TEST(InferenceSessionTest, GroupsGoRoundThePools) {
  Runtime runtime({.intra_op_threads = 1});
  InferenceOptions options = untrained();
  options.groups = 3;
  options.pools = {{1, "a"}, {1, "b"}};
  InferenceSession session(two_branches(), {"x"}, {"y"}, options, runtime);
  const auto feeds = batches({2});
  const LoadResult result = run_load(session, feeds, {.clients = 3, .requests = 20});
  const auto runs = session.pool_runs();
  EXPECT_EQ(runs[0], result.groups[0].requests + result.groups[2].requests);
  EXPECT_EQ(runs[1], result.groups[1].requests);
  const LoadResult named = run_load(session, feeds, {.clients = 3, .requests = 20, .pool = 1});
  EXPECT_EQ(named.answered(), 60U);
  EXPECT_EQ(session.pool_runs()[1], runs[1] + 60);
  EXPECT_THAT(message_of([&] {
                session.run({feeds[0], 2}, soon());
              }),
              HasSubstr("launch pool 2 does not exist: there are 2"));
}

TEST(InferenceSessionTest, WritesOfVariablesAreRefused) {
  GraphBuilder b;
  const Output v = b.variable("v", Shape{2}, {});
  const Output x = b.placeholder("x", DType::Float32, Shape{2});
  const Output update = b.op("AssignAddVariableOp", {v, x}, {}, "update");
  b.control_dependency(update, b.op("Neg", {x}, {}, "y"));
  Runtime runtime({.intra_op_threads = 1});
  EXPECT_THAT(
      message_of([&] { InferenceSession(import_graph(b.graph()), {"x"}, {"y"}, untrained(), runtime); }),
      AllOf(HasSubstr("'update'"), HasSubstr("writes a variable, which all stream groups share")));
}

TEST(InferenceSessionTest, NamesAreCheckedWhenItIsMade) {
  Runtime runtime({.intra_op_threads = 1});
  const auto refusal = [&](std::vector<std::string> inputs, std::vector<std::string> outputs) {
    return message_of([&] {
      InferenceSession(two_branches(), std::move(inputs), std::move(outputs), untrained(), runtime);
    });
  };
  EXPECT_EQ(refusal({"x"}, {"nothing"}), "there is no node 'nothing'");
  EXPECT_EQ(refusal({"z"}, {"y"}), "there is no node 'z'");
  EXPECT_EQ(refusal({"x", "x:0"}, {"y"}), "input 'x:0' is given twice");
  EXPECT_EQ(refusal({}, {"y"}), "no input for 'x', which the outputs need");
  EXPECT_EQ(refusal({"x"}, {"^y"}), "output '^y' is a control edge, not a value");
  EXPECT_EQ(refusal({"x"}, {}), "no output is named");
  EXPECT_EQ(refusal({"Relu"}, {"Relu"}), "nothing was thrown") << "what is between may be given, too";
}

TEST(InferenceSessionTest, AFailedRequestGivesItsGroupBack) {
  Runtime runtime({.intra_op_threads = 1});
  InferenceSession session(two_branches(), {"x"}, {"y"}, untrained(), runtime);
  const auto good = batches({2})[0];
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(message_of([&] {
                  session.run({{Tensor::zeros(DType::Float32, Shape{2, 15})}}, soon());
                }),
                HasSubstr("15"));
    EXPECT_THROW(session.run({good}, WaitContext::with_timeout(std::chrono::seconds(-1))), DeadlineExceeded);
    EXPECT_THROW(session.run({{}}, soon()), InvalidArgument);
  }
  EXPECT_EQ(session.run({good}, soon()).size(), 1U);
}

TEST(InferenceSessionTest, MemoryIsLimitedTogetherOrInEqualParts) {
  const auto feeds = batches({64, 4});
  const auto run = [&](std::uint64_t limit, bool share, std::size_t which) {
    Runtime runtime({.intra_op_threads = 1});
    InferenceOptions options = untrained();
    options.groups = 2;
    options.memory_limit = limit;
    options.share_memory_limit = share;
    InferenceSession session(two_branches(), {"x"}, {"y"}, options, runtime);
    return message_of<Error>([&] {
      session.run({feeds[0]}, soon());
      session.run({feeds[which]}, soon());
    });
  };
  // The arena of the large batch: at least two values of 64 x 16 floats.
  constexpr std::uint64_t kLarge = std::uint64_t{2} * 64 * 16 * 4;
  EXPECT_EQ(run(0, true, 0), "nothing was thrown");
  EXPECT_THAT(run(kLarge / 2, true, 0), HasSubstr("stream group 0: no room for"));
  // In equal parts a half has to do for each group, however little the other one needs.
  EXPECT_EQ(run(3 * kLarge, true, 1), "nothing was thrown");
  EXPECT_THAT(run(kLarge, false, 1), HasSubstr("its part of the limit is " + std::to_string(kLarge / 2)));
}

class InferenceInputsTest : public testing::Test {
 protected:
  std::string array(const std::string& name, std::vector<std::int64_t> shape,
                    const std::vector<float>& values) const {
    write_file_atomically(directory_.path() / name,
                          format_npy(DType::Float32, shape, std::as_bytes(std::span(values))));
    return (directory_.path() / name).string();
  }
  const TempDir directory_;
};

TEST_F(InferenceInputsTest, FilesAreCutIntoBatches) {
  std::vector<float> values(5 * 16);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const std::string file = array("x.npy", {5, 16}, values);
  const auto feeds = make_feeds(two_branches(), {parse_inference_input("x:0=" + file)}, {.batch = 2});
  ASSERT_EQ(feeds.size(), 2U);  // the fifth row fills no batch
  EXPECT_EQ(feeds[1][0].shape(), (Shape{2, 16}));
  EXPECT_EQ(feeds[1][0].data<float>()[0], 32.0F);
  EXPECT_THAT(
      message_of([&] { make_feeds(two_branches(), {parse_inference_input("x=" + file)}, {.batch = 6}); }),
      HasSubstr("[5, 16] has fewer rows than a batch of 6"));
}

TEST_F(InferenceInputsTest, RowsOfSeveralFilesBelongTogether) {
  GraphBuilder b;
  b.placeholder("x", DType::Float32, {-1, 2});
  b.placeholder("z", DType::Float32, {-1, 2});
  b.placeholder("scale", DType::Float32, {2});
  const Graph graph = import_graph(b.graph());
  const auto input = [&](const std::string& name, std::int64_t rows) {
    const std::vector<float> values(static_cast<std::size_t>(2 * rows), 1.0F);
    const std::string file = array(name + std::to_string(rows) + ".npy", {rows, 2}, values);
    return parse_inference_input(name + "=" + file);
  };
  const auto scale = parse_inference_input("scale=" + array("scale.npy", {2}, {3, 4}));
  const auto feeds = make_feeds(graph, {input("x", 8), scale, input("z", 8)}, {.batch = 4});
  ASSERT_EQ(feeds.size(), 2U);
  EXPECT_EQ(feeds[1][1].data<float>()[1], 4.0F) << "one for all requests";
  for (const auto& [x, z] : {std::pair(8, 4), std::pair(4, 8)})
    EXPECT_THAT(message_of([&] {
                  make_feeds(graph, {input("x", x), input("z", z)}, {.batch = 4});
                }),
                HasSubstr("has rows for"))
        << "not the first rows of one with the last ones of the other";
}

TEST_F(InferenceInputsTest, TextIsCutLikeNumbersAndNotDrawn) {
  GraphBuilder b;
  b.placeholder("s", DType::String, {-1});
  const Graph graph = import_graph(b.graph());
  const std::string file = (directory_.path() / "s.npy").string();
  std::string header = "{'descr': '|S2', 'fortran_order': False, 'shape': (4,), }";
  header.resize(117, ' ');
  std::ofstream(file, std::ios::binary) << std::string("\x93NUMPY\x01\x00\x76\x00", 10) << header << '\n'
                                        << std::string("abc\0d\0ef", 8);
  const auto feeds = make_feeds(graph, {parse_inference_input("s=" + file)}, {.batch = 2});
  ASSERT_EQ(feeds.size(), 2U);
  EXPECT_EQ(feeds[0][0].string_at(1), "c");
  EXPECT_EQ(feeds[1][0].string_at(1), "ef");
  EXPECT_THAT(message_of([&] { make_feeds(graph, {parse_inference_input("s")}, {.batch = 2}); }),
              HasSubstr("input 's' holds text: give --input a .npy file"));
}

TEST_F(InferenceInputsTest, NumbersAreDrawnFromTheSeed) {
  const Graph graph = two_branches();
  const auto inputs = placeholders_of(graph, {"y"});
  ASSERT_EQ(inputs.size(), 1U);
  const auto once = make_feeds(graph, inputs, {.batch = 4, .seed = 3});
  const auto again = make_feeds(graph, inputs, {.batch = 4, .seed = 3});
  const auto other = make_feeds(graph, {parse_inference_input("x=-1,16")}, {.batch = 4, .seed = 4});
  EXPECT_EQ(once[0][0].shape(), (Shape{4, 16}));
  EXPECT_EQ(std::memcmp(once[0][0].raw(), again[0][0].raw(), once[0][0].bytes()), 0);
  EXPECT_NE(std::memcmp(once[0][0].raw(), other[0][0].raw(), once[0][0].bytes()), 0);
}

TEST_F(InferenceInputsTest, WhatIsNoInputIsRefused) {
  EXPECT_THAT(message_of([] { parse_inference_input("=3"); }), HasSubstr("expected name"));
  EXPECT_THAT(message_of([] { parse_inference_input("x=3,0"); }), HasSubstr("sizes are positive"));
  EXPECT_THAT(message_of([] { parse_inference_input("x=3,b"); }), HasSubstr("neither a shape"));
  EXPECT_THAT(message_of([] { make_feeds(two_branches(), {parse_inference_input("z")}, {}); }),
              HasSubstr("z"));
}

TEST(LoadResultTest, PercentilesAreNearestRanks) {
  LoadResult result;
  EXPECT_EQ(result.percentile(0.5), 0);
  result.latencies = {1, 2, 3, 4};
  EXPECT_EQ(result.percentile(0.5), 2);
  EXPECT_EQ(result.percentile(0.51), 3);
  EXPECT_EQ(result.percentile(0.99), 4);
  EXPECT_EQ(result.percentile(0), 1);
}

}  // namespace
}  // namespace braid::worker
