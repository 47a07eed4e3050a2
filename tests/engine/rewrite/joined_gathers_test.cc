// Slices by several lists of numbers that are joined: one gather, and one sum of their gradients, with the
// values of the graph as written.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/exec/runtime.h"
#include "engine/import/import.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"

namespace braid::testing {
namespace {

constexpr std::int64_t kGraphs = 3, kNodes = 5, kFeatures = 4, kEdges = 7;

int ops_named(const Program& program, const std::string& name) {
  return static_cast<int>(std::count_if(program.ops.begin(), program.ops.end(),
                                        [&](const ProgramOp& op) { return op.op == name; }));
}

class JoinedGathersTest : public ::testing::Test {
 protected:
  JoinedGathersTest() {
    x_ = feed("x", Shape{kGraphs, kNodes, kFeatures});
    dy_ = feed("dy", Shape{kGraphs, kEdges, 2 * kFeatures});
    for (std::int64_t i = 0; i < kGraphs * kNodes * kFeatures; ++i)
      values_[0].data<float>()[at(i)] = number(i);
    for (std::int64_t i = 0; i < kGraphs * kEdges * 2 * kFeatures; ++i)
      values_[1].data<float>()[at(i)] = number(i);
    for (int list = 0; list < 2; ++list) {
      Tensor numbers(DType::Int32, {kGraphs, kEdges});
      for (std::int64_t i = 0; i < kGraphs * kEdges; ++i)
        numbers.data<std::int32_t>()[at(i)] = static_cast<std::int32_t>((3 * i + 2 * list + i * i) % kNodes);
      lists_.push_back(b_.placeholder("i" + std::to_string(list), DType::Int32, {kGraphs, kEdges}));
      request_.feeds.push_back({"i" + std::to_string(list), DType::Int32, {kGraphs, kEdges}});
      values_.push_back(std::move(numbers));
    }
  }

  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  static float number(std::int64_t i) { return static_cast<float>((i * 7919) % 101) / 8 - 6; }
  std::int64_t row(int list, std::int64_t i) const {
    return values_[at(2 + list)].data<std::int32_t>()[at(i)];
  }
  Output feed(const std::string& name, const Shape& shape) {
    request_.feeds.push_back({name, DType::Float32, shape});
    values_.emplace_back(DType::Float32, shape);
    return b_.placeholder(name, DType::Float32, shape);
  }
  Output axis(std::int32_t value) { return b_.constant(Tensor::scalar(value), "axis"); }
  Output slices(int list, std::int32_t of_axis = 1) {
    return b_.op("braid.BatchGather", {x_, lists_[at(list)], axis(of_axis)},
                 {{"batch_dims", std::int64_t{1}}});
  }
  std::vector<Output> gradients() {
    const Output a = slices(0), b = slices(1);
    const Output parts = b_.op("braid.SplitLike", {axis(-1), dy_, a, b});
    std::vector<Output> made;
    for (int list = 0; list < 2; ++list)
      made.push_back(b_.op("braid.BatchGatherGrad", {Output{parts.node, list}, lists_[at(list)], axis(1), x_},
                           {{"batch_dims", std::int64_t{1}}}));
    return made;
  }
  std::shared_ptr<const Program> compiled(std::vector<Output> fetches) {
    for (const Output& fetch : fetches) request_.fetches.push_back(fetch.name());
    return compile(import_graph(b_.graph()), request_, {});
  }
  Tensor run(const std::shared_ptr<const Program>& program) {
    Runtime runtime(RuntimeOptions{});
    Instance instance(program, runtime);
    StepRequest request;
    request.feeds = values_;
    return instance.run(std::move(request), WaitContext::with_timeout(std::chrono::seconds(60))).fetches[0];
  }

  GraphBuilder b_;
  CompileRequest request_;
  Output x_, dy_;
  std::vector<Output> lists_;
  std::vector<Tensor> values_;
};

TEST_F(JoinedGathersTest, AreOneGather) {
  const auto program = compiled({b_.concat({slices(0), slices(1)}, 2)});
  EXPECT_EQ(ops_named(*program, "braid.BatchGather"), 1);
  EXPECT_EQ(ops_named(*program, "ConcatV2"), 0);
  const Tensor y = run(program);
  ASSERT_EQ(y.shape(), (Shape{kGraphs, kEdges, 2 * kFeatures}));
  for (std::int64_t i = 0; i < y.elements(); ++i) {
    const std::int64_t place = i / (2 * kFeatures), list = i / kFeatures % 2, batch = place / kEdges;
    EXPECT_EQ(y.data<float>()[at(i)],
              number((batch * kNodes + row(static_cast<int>(list), place)) * kFeatures + i % kFeatures));
  }
}

TEST_F(JoinedGathersTest, GradientsAreOneSum) {
  std::vector<Output> summands = gradients();
  summands.push_back(x_);
  const auto program = compiled({b_.op("AddN", summands)});
  EXPECT_EQ(ops_named(*program, "braid.BatchGatherGrad"), 1);
  EXPECT_EQ(ops_named(*program, "braid.SplitLike"), 0);
  std::vector<float> want(at(kGraphs * kNodes * kFeatures));
  for (std::size_t i = 0; i < want.size(); ++i) want[i] = number(static_cast<std::int64_t>(i));
  for (std::int64_t place = 0; place < kGraphs * kEdges; ++place)
    for (int list = 0; list < 2; ++list)
      for (std::int64_t c = 0; c < kFeatures; ++c)
        want[at((place / kEdges * kNodes + row(list, place)) * kFeatures + c)] +=
            number((2 * place + list) * kFeatures + c);
  const Tensor is = run(program);
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(is.data<float>()[i], want[i], 1e-4) << i;
}

TEST_F(JoinedGathersTest, WithoutAnotherSummandThereIsNoSum) {
  const auto program = compiled({b_.op("Neg", {b_.op("AddN", gradients())})});
  EXPECT_EQ(ops_named(*program, "AddN") + ops_named(*program, "braid.SplitLike"), 0);
  EXPECT_EQ(ops_named(*program, "braid.BatchGatherGrad"), 1);
}

TEST_F(JoinedGathersTest, WhatOthersReadStays) {
  const Output a = slices(0), b = slices(1);
  const auto program = compiled({b_.concat({a, b}, 2), b_.op("Neg", {a})});
  EXPECT_EQ(ops_named(*program, "braid.BatchGather"), 2);
  EXPECT_EQ(ops_named(*program, "ConcatV2"), 1);
}

TEST_F(JoinedGathersTest, RowsThatAreJoinedBelowEachOtherStay) {
  const auto program = compiled({b_.concat({slices(0), slices(1)}, 1)});
  EXPECT_EQ(ops_named(*program, "braid.BatchGather"), 2);
}

}  // namespace
}  // namespace braid::testing
