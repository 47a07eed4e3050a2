// Small nodes that a region computes at each of its places: which become part of it, and how their elements
// are met.
#include "engine/rewrite/region_lifts.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/import/import.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

using fusion::Axes;

/// The elements that places meet, in their order.
std::vector<std::int64_t> met_by(const Axes& axes) {
  std::vector<std::int64_t> elements{0};
  for (const auto& [size, stride] : axes) {
    std::vector<std::int64_t> next;
    for (const std::int64_t element : elements)
      for (std::int64_t i = 0; i < size; ++i) next.push_back(element + i * stride);
    elements = std::move(next);
  }
  return elements;
}

TEST(RegionLiftsTest, AxesBehindAxesMeetTheSameElements) {
  std::mt19937 random(3);
  const auto pick = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
  int made = 0;
  for (int round = 0; round < 2000; ++round) {
    Axes inner, outer;
    std::int64_t count = 1;
    for (std::size_t axes = pick(4); axes > 0; --axes) {
      inner.push_back({static_cast<std::int64_t>(2 + pick(4)), static_cast<std::int64_t>(pick(20))});
      count *= inner.back().size;
    }
    // Rows that are repeated, columns that are, or all of them as they lie.
    const auto repeats = static_cast<std::int64_t>(2 + pick(5));
    if (pick(2) == 0) outer.push_back({repeats, 0});
    outer.push_back({count, 1});
    if (pick(2) == 0) outer.push_back({repeats, 0});
    const auto both = composed(outer, inner);
    if (!both) continue;
    ++made;
    const std::vector<std::int64_t> behind = met_by(inner);
    std::vector<std::int64_t> expected;
    for (const std::int64_t element : met_by(outer))
      expected.push_back(behind[static_cast<std::size_t>(element)]);
    EXPECT_EQ(met_by(*both), expected);
  }
  EXPECT_GT(made, 1000);
}

class LiftedModel {
 public:
  Output feed(const std::string& name, const Shape& shape) {
    request_.feeds.push_back({name, DType::Float32, shape});
    return b.placeholder(name, DType::Float32, shape);
  }
  /// Kernels of the program, of which so many are regions.
  std::pair<std::size_t, int> compiled(std::initializer_list<Output> fetches) {
    for (const Output& fetch : fetches) request_.fetches.push_back(fetch.name());
    CompileOptions options;
    options.fusion = true;
    const auto program = compile(import_graph(b.graph()), request_, options);
    return {program->ops.size(), count_ops(*program, "braid.Fused")};
  }

  GraphBuilder b;

 private:
  CompileRequest request_;
};

TEST(RegionLiftsTest, WhatIsDoneToEachColumnIsDoneInTheRegion) {
  LiftedModel m;
  const Output gain = m.feed("gain", {64}), mean = m.feed("mean", {64});
  const Output scaled = m.b.mul(gain, mean), shifted = m.b.op("Sub", {scaled, mean});
  const Output y = m.b.op("AddV2", {m.b.mul(m.feed("x", {256, 64}), scaled), shifted});
  EXPECT_EQ(m.compiled({m.b.op("Tanh", {y})}), std::pair(std::size_t{1}, 1));
}

TEST(RegionLiftsTest, WhatOthersNeedIsComputedForThem) {
  LiftedModel m;
  const Output scaled = m.b.op("Square", {m.feed("gain", {64})});
  const Output y = m.b.op("Tanh", {m.b.mul(m.feed("x", {256, 64}), scaled)});
  EXPECT_EQ(m.compiled({y, scaled}), std::pair(std::size_t{2}, 1));
}

TEST(RegionLiftsTest, TwoWaysToMeetAreTwoKernels) {
  LiftedModel m;
  const Output scaled = m.b.op("Square", {m.feed("gain", {64})});
  const Output across = m.b.reshape(scaled, {64, 1});
  const Output y = m.b.mul(m.b.mul(m.feed("x", {64, 64}), scaled), across);
  EXPECT_EQ(m.compiled({m.b.op("Tanh", {y})}).first, 2U);
}

TEST(RegionLiftsTest, FunctionsAtManyPlacesAreNotRepeated) {
  LiftedModel m;
  Output scaled = m.feed("gain", {64});
  for (int i = 0; i < 4; ++i) scaled = m.b.op("Tanh", {scaled});
  const Output y = m.b.op("Neg", {m.b.mul(m.feed("x", {8192, 64}), scaled)});
  EXPECT_EQ(m.compiled({y}).first, 2U);
}

}  // namespace
}  // namespace braid::testing
