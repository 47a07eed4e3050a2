// Parts of a graph run again and again: state, refusals by name, a graph that grows, records and stages.
#include "worker/session/graph_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "base/error.h"
#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "engine/staging/stage_marks.h"
#include "proto/graph.pb.h"
#include "tests/support/message_of.h"

namespace braid::worker {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Tensor vector(std::vector<float> values) {
  return Tensor::from<float>(Shape{static_cast<std::int64_t>(values.size())}, values);
}
std::vector<float> floats(const Tensor& tensor) {
  return {tensor.data<float>().begin(), tensor.data<float>().end()};
}

/// y = x * w; "double" doubles w.
Graph product(bool with_value = true) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {-1});
  const Output w = with_value ? b.variable("w", Shape{}, {.init = {InitKind::Constant, 3.0F, 0}})
                              : b.op("VarHandleOp", {}, {{"dtype", DType::Float32}, {"shape", Shape{}}}, "w");
  const Output read = b.op("ReadVariableOp", {w}, {{"dtype", DType::Float32}}, "read");
  b.op("Mul", {x, read}, {}, "y");
  b.op("AssignVariableOp", {w, b.op("AddV2", {read, read}, {}, "twice")}, {{"dtype", DType::Float32}},
       "double");
  return import_graph(b.graph());
}

TEST(GraphSessionTest, VariablesLiveFromRunToRun) {
  const Graph graph = product();
  GraphSession session({});
  EXPECT_THAT(floats(session.run(graph, {{"y"}, {}, {{"x", vector({1, 2})}}})[0]), ElementsAre(3, 6));
  session.run(graph, {{}, {"double"}});
  EXPECT_THAT(floats(session.run(graph, {{"y"}, {}, {{"x", vector({1})}}})[0]), ElementsAre(6));
  EXPECT_THAT(session.variables(), ElementsAre("w"));
  session.assign(graph, "w", Tensor::scalar(5.0F));
  EXPECT_THAT(floats(*session.value("w")), ElementsAre(5));
}

TEST(GraphSessionTest, RefusesByName) {
  const Graph graph = product(false);
  GraphSession session({});
  EXPECT_THAT(message_of([&] {
                session.run(graph, {{"y"}, {}, {}});
              }),
              AllOf(HasSubstr("placeholder 'x'"), HasSubstr("not fed")));
  EXPECT_THAT(message_of([&] { session.run(graph, {{"y"}, {}, {{"x", vector({1})}}}); }), HasSubstr("'w'"));
  EXPECT_THAT(message_of([&] { session.assign(graph, "v", Tensor::scalar(1.0F)); }),
              HasSubstr("no variable 'v'"));
  EXPECT_THAT(message_of([&] { session.assign(graph, "w", vector({1})); }), HasSubstr("float32 []"));
  EXPECT_FALSE(session.value("w").has_value());
  session.assign(graph, "w", Tensor::scalar(2.0F));
  EXPECT_THAT(floats(session.run(graph, {{"y"}, {}, {{"x", vector({4})}}})[0]), ElementsAre(8));
}

TEST(GraphSessionTest, TheGraphMayGrowBetweenRuns) {
  Graph graph = product();
  GraphSession session({});
  session.run(graph, {{"y"}, {}, {{"x", vector({1})}}});
  Node negative;
  negative.name = "z";
  negative.op = &OpRegistry::global().require("Neg");
  negative.inputs = {graph.parse_value("y")};
  graph.add(std::move(negative));
  EXPECT_THAT(floats(session.run(graph, {{"z"}, {}, {{"x", vector({1})}}})[0]), ElementsAre(-3));
}

/// Records 0, 1, ... `count` of placeholder "r".
RecordSource counting(int count) {
  return {{"r"}, [count](std::uint64_t ticket) {
            if (ticket >= static_cast<std::uint64_t>(count)) throw OutOfRange("no more");
            Batch batch;
            batch.tensors.push_back(vector({static_cast<float>(ticket)}));
            return batch;
          }};
}

TEST(GraphSessionTest, ARunReadsARecordWhereNoStageDoes) {
  GraphBuilder b;
  b.op("Neg", {b.placeholder("r", DType::Float32, {1})}, {}, "y");
  const Graph graph = import_graph(b.graph());
  GraphSession session({});
  session.add_source(counting(2));
  EXPECT_THAT(floats(session.run(graph, {{"y"}, {}})[0]), ElementsAre(0));
  EXPECT_THAT(floats(session.run(graph, {{"y"}, {}})[0]), ElementsAre(-1));
  EXPECT_THROW(session.run(graph, {{"y"}, {}}), OutOfRange);
}

TEST(GraphSessionTest, RunsOfDifferentFetchesTakeFromOneStage) {
  GraphBuilder b;
  const Output r = b.placeholder("r", DType::Float32, {1});
  const auto out = staged(b, Nested<Output>(b.op("Neg", {r})), {.capacity = 2});
  b.op("AddV2", {out.leaf(), out.leaf()}, {}, "twice");
  b.op("Identity", {out.leaf()}, {}, "once");
  const Graph graph = import_graph(b.graph());
  GraphSession session({});
  session.add_source(counting(3));
  EXPECT_THAT(floats(session.run(graph, {{"once"}, {}})[0]), ElementsAre(0));
  EXPECT_THAT(floats(session.run(graph, {{"twice"}, {}})[0]), ElementsAre(-2));
  EXPECT_THAT(floats(session.run(graph, {{"once"}, {}})[0]), ElementsAre(-2));
  EXPECT_THROW(session.run(graph, {{"once"}, {}}), OutOfRange);
}

TEST(GraphSessionTest, WhatPollThrowsEndsTheWaitForAStageAndLosesNothing) {
  GraphBuilder b;
  const Output r = b.placeholder("r", DType::Float32, {1});
  b.op("Identity", {staged(b, Nested<Output>(r)).leaf()}, {}, "y");
  const Graph graph = import_graph(b.graph());
  std::atomic<bool> go{false};
  RecordSource slow = counting(1);
  slow.read = [&go, read = slow.read](std::uint64_t ticket) {
    for (int i = 0; i < 2000 && !go; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return read(ticket);
  };
  GraphSession session({});
  session.add_source(slow);
  struct Interrupted {};
  EXPECT_THROW(session.run(graph, {{"y"}, {}, {}, [] { throw Interrupted(); }}), Interrupted);
  go = true;
  EXPECT_THAT(floats(session.run(graph, {{"y"}, {}})[0]), ElementsAre(0));
}

TEST(GraphSessionTest, NoSourceIsReadWhenCloseReturns) {
  GraphBuilder b;
  const Output r = b.placeholder("r", DType::Float32, {1});
  b.op("Identity", {staged(b, Nested<Output>(r), {.capacity = 2}).leaf()}, {}, "y");
  const Graph graph = import_graph(b.graph());
  std::atomic<int> begun{0}, ended{0};
  RecordSource slow = counting(1'000'000);
  slow.read = [&, read = slow.read](std::uint64_t ticket) {
    ++begun;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    Batch batch = read(ticket);
    ++ended;
    return batch;
  };
  GraphSession session({});
  session.add_source(slow);
  for (int life = 0; life < 3; ++life) {
    session.start_stages(graph);
    session.run(graph, {{"y"}, {}});
    session.close();
    const int closed = begun;
    EXPECT_EQ(closed, ended);
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    EXPECT_EQ(closed, begun);
  }
}

}  // namespace
}  // namespace braid::worker
