// Axes over what is behind a transposition, as axes over what is before it: every place meets its element.
#include "engine/rewrite/region_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/fusion/region.h"
#include "engine/import/import.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

using fusion::Axes;

/// The elements that places meet, in their order.
std::vector<std::int64_t> elements_of(const Axes& axes, std::int64_t offset = 0) {
  std::vector<std::int64_t> elements{offset};
  for (const auto& [size, stride] : axes) {
    std::vector<std::int64_t> next;
    for (const std::int64_t element : elements)
      for (std::int64_t i = 0; i < size; ++i) next.push_back(element + i * stride);
    elements = std::move(next);
  }
  return elements;
}

TurnOf turn(const std::vector<std::int64_t>& from, const std::vector<std::size_t>& order) {
  TurnOf made;
  for (const std::size_t axis : order) {
    made.sizes.push_back(from[axis]);
    made.strides.push_back(std::accumulate(from.begin() + static_cast<std::ptrdiff_t>(axis) + 1, from.end(),
                                           std::int64_t{1}, std::multiplies<>()));
  }
  return made;
}

/// The element before of each element behind.
std::vector<std::int64_t> before(const TurnOf& turn) {
  Axes axes;
  for (std::size_t a = 0; a < turn.sizes.size(); ++a) axes.push_back({turn.sizes[a], turn.strides[a]});
  return elements_of(axes);
}

void expect_meets(const TurnOf& turn, const Axes& axes, bool must, std::int64_t offset = 0) {
  const auto through = axes_through(turn, {axes, offset});
  EXPECT_TRUE(through || !must);
  if (!through) return;
  const std::vector<std::int64_t> was = before(turn), got = elements_of(through->axes, through->offset);
  std::vector<std::int64_t> expected;
  for (const std::int64_t element : elements_of(axes, offset))
    expected.push_back(was[static_cast<std::size_t>(element)]);
  EXPECT_EQ(got, expected);
}

TEST(RegionTurnsTest, WholeValuesAndRepeatedOnesAreMet) {
  const TurnOf swapped = turn({3, 4, 5}, {0, 2, 1});
  expect_meets(swapped, {{60, 1}}, true);
  expect_meets(swapped, {{3, 20}, {7, 0}, {20, 1}}, true);
  expect_meets(swapped, {{60, 1}, {2, 0}}, true);
  expect_meets(swapped, {{4, 1}, {15, 4}}, true);
  expect_meets(turn({6, 4}, {1, 0}), {{2, 12}, {3, 4}, {2, 2}, {2, 1}}, false);
  EXPECT_FALSE(axes_through(turn({4, 3}, {1, 0}), {{{2, 3}, {3, 1}}}));  // a row and a half of four each
}

TEST(RegionTurnsTest, PartsAreMetFromAnyElementOn) {
  const PartOf part{{}, 6, 20, 8};  // columns 8 to 13 of rows of 20
  for (const std::int64_t offset : {0, 1, 6, 9}) {
    const Axes axes{{2, 6}, {2, 2}};
    const auto through = axes_through(part, {axes, offset});
    ASSERT_EQ(through.has_value(), offset % 6 < 4) << offset;
    if (!through) continue;
    std::vector<std::int64_t> expected;
    for (const std::int64_t element : elements_of(axes, offset))
      expected.push_back(8 + element / 6 * 20 + element % 6);
    EXPECT_EQ(elements_of(through->axes, through->offset), expected) << offset;
  }
  EXPECT_FALSE(axes_through(part, {{{2, 6}, {2, 2}}, 4}));  // past the end of a row
}

TEST(RegionTurnsTest, AnyAxesAreMetOrRefused) {
  std::mt19937 random(7);
  const auto pick = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
  int met = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::int64_t> from(2 + pick(3));
    for (std::int64_t& size : from) size = std::vector<std::int64_t>{1, 2, 3, 4, 6}[pick(5)];
    std::vector<std::size_t> order(from.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    const TurnOf turned = turn(from, order);
    const auto count = static_cast<std::int64_t>(before(turned).size());
    Axes axes;
    const auto offset = static_cast<std::int64_t>(pick(3));
    std::int64_t last = offset;
    for (int tries = 0; tries < 4; ++tries) {
      const fusion::Axis axis{static_cast<std::int64_t>(1 + pick(6)), static_cast<std::int64_t>(pick(13))};
      if (last + (axis.size - 1) * axis.stride >= count) continue;
      last += (axis.size - 1) * axis.stride;
      axes.push_back(axis);
    }
    if (last >= count) continue;
    met += axes_through(turned, {axes, offset}).has_value();
    expect_meets(turned, axes, false, offset);
  }
  EXPECT_GT(met, 500);
}

/// Transpositions that are left of exp(x) transposed in front of `behind`, and regions.
std::pair<int, int> left_of(const Shape& shape, std::vector<std::int32_t> order, const char* behind) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, shape);
  const Output axes =
      b.constant(Tensor::from<std::int32_t>({static_cast<std::int64_t>(order.size())}, order), "order");
  const Output turned = b.op("Transpose", {b.op("Exp", {x}), axes});
  CompileRequest request;
  request.feeds = {{"x", DType::Float32, shape}};
  request.fetches = {b.op(behind, {turned}).name()};
  CompileOptions options;
  options.fusion = true;
  const auto program = compile(import_graph(b.graph()), request, options);
  return {count_ops(*program, "Transpose"), count_ops(*program, "braid.Fused")};
}

TEST(RegionTurnsTest, RegionsReadWhatIsTransposedWhereItLies) {
  EXPECT_EQ(left_of({64, 24, 4}, {0, 2, 1}, "Softmax"), std::pair(0, 1));
  EXPECT_EQ(left_of({16, 64, 32}, {1, 0, 2}, "Tanh"), std::pair(0, 1));
  EXPECT_EQ(left_of({512, 512}, {1, 0}, "Tanh"), std::pair(1, 0));  // too far apart
  EXPECT_EQ(left_of({64, 24, 4}, {0, 2, 1}, "Shape"), std::pair(0, 0));
}

/// Slices of which a product reads one turned, as heads are cut out of a layer's output, and their gradients
/// are joined.
TEST(RegionTurnsTest, WhatIsCutOutOrJoinedIsTurnedOnTheWay) {
  GraphBuilder b;
  const auto numbers = [&](const std::vector<std::int32_t>& values) {
    return b.constant(Tensor::from<std::int32_t>({std::ssize(values)}, values));
  };
  CompileRequest request;
  const auto feed = [&](const char* name, const Shape& shape) {
    request.feeds.push_back({name, DType::Float32, shape});
    return b.placeholder(name, DType::Float32, shape);
  };
  const Output all = feed("all", {64, 24, 32}), other = feed("other", {64, 16, 24});
  const Output order = numbers({0, 2, 1});
  const Output cut = b.op("Slice", {all, numbers({0, 0, 16}), numbers({64, 24, 16})});
  const Output heads = b.op("Transpose", {b.op("Reshape", {cut, numbers({64, 24, 16})}), numbers({1, 0, 2})});
  const Output product =
      b.op("BatchMatMulV2", {b.op("Reshape", {heads, numbers({24, 64, 16})}), feed("w", {24, 16, 4})});
  const Output joined =
      b.op("ConcatV2", {b.op("Transpose", {other, order}), b.op("Tanh", {feed("x", {64, 24, 16})}),
                        b.constant(Tensor::scalar<std::int32_t>(2))});
  request.fetches = {
      product.name(),
      b.op("Neg", {b.op("MatMul", {b.op("Reshape", {joined, numbers({64 * 24, 32})}), feed("v", {32, 4})})})
          .name()};
  CompileOptions options;
  options.fusion = true;
  const auto program = compile(import_graph(b.graph()), request, options);
  EXPECT_EQ(count_ops(*program, "Slice"), 0);
  EXPECT_EQ(count_ops(*program, "Transpose"), 0);
  EXPECT_EQ(count_ops(*program, "ConcatV2"), 0);
  EXPECT_EQ(count_ops(*program, "braid.Fused"), 2);
}

}  // namespace
}  // namespace braid::testing
