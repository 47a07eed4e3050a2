// Gates' products with their experts have a gradient that is one node on a device, and means the same.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/import/import.h"
#include "engine/ir/op.h"
#include "models/multi_branch.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/differentiated.h"
#include "tests/support/missing.h"

namespace braid::testing {
namespace {

constexpr std::int64_t kOuterRows = 12, kOuterWidth = 20;

Differentiated mixture(int tasks, int streams) {
  GraphBuilder b;
  std::vector<std::pair<std::string, Tensor>> feeds{{"x", random_floats({kOuterRows, kOuterWidth}, 1)}};
  std::vector<Output> labels;
  for (int t = 0; t < tasks; ++t) {
    feeds.emplace_back("y" + std::to_string(t), random_floats({kOuterRows}, 2 + static_cast<unsigned>(t)));
    labels.push_back(b.placeholder(feeds.back().first, DType::Float32, Shape{kOuterRows}));
  }
  const Output loss = build_mmoe(b, b.placeholder("x", DType::Float32, Shape{kOuterRows, kOuterWidth}),
                                 kOuterWidth, labels, 3, streams);
  return differentiated(b, loss, std::move(feeds));
}

TEST(FuseOuterProductsTest, TheGradientOfExpertsIsOneNodeWhateverTheirStreams) {
  for (const int streams : {0, 3}) {
    const Differentiated model = mixture(4, streams);
    const auto program = model.compiled(Domain::Device, std::max(1, streams));
    EXPECT_EQ(count_ops(*program, "braid.SumOfOuterProducts"), 1);
    expect_same_values(model, *program);
  }
}

/// Two products of row vectors of `columns` columns, and their sum.
Differentiated sum_of_two(std::int64_t columns) {
  GraphBuilder b;
  Differentiated model;
  std::vector<Output> products;
  for (unsigned i = 0; i < 2; ++i) {
    std::vector<Output> sides;
    for (const auto& [side, width] : {std::pair{"a", std::int64_t{3}}, {"c", columns}}) {
      model.feeds.emplace_back(side + std::to_string(i),
                               random_floats({kOuterRows, 1, width}, 2 * i + width));
      sides.push_back(b.placeholder(model.feeds.back().first, DType::Float32, Shape{kOuterRows, 1, width}));
    }
    products.push_back(b.op("BatchMatMulV2", sides, {{"adj_x", true}, {"adj_y", false}}));
  }
  const Output sum = b.op("AddN", products, {{"N", std::int64_t{2}}});
  model.graph = import_graph(b.graph());
  model.look_at("seen", model.graph.parse_value(sum.name()));
  return model;
}

TEST(FuseOuterProductsTest, WhatTheKernelDoesNotTakeStaysOnTheDevice) {
  EXPECT_EQ(count_ops(*sum_of_two(8).compiled(), "braid.SumOfOuterProducts"), 1);
  if (!OpRegistry::global().require("braid.SumOfOuterProducts").cuda) GTEST_SKIP() << missing::kCudaKernels;
  const auto program = sum_of_two(6).compiled();
  EXPECT_EQ(count_ops(*program, "BatchMatMulV2"), 2);
  EXPECT_EQ(count_ops(*program, "braid.DeviceToHost"), 0);
}

TEST(FuseOuterProductsTest, OneGateAndHostProgramsKeepTheirProducts) {
  EXPECT_EQ(count_ops(*mixture(1, 0).compiled(), "braid.SumOfOuterProducts"), 0);
  EXPECT_EQ(count_ops(*mixture(4, 0).compiled(Domain::Host), "braid.SumOfOuterProducts"), 0);
}

}  // namespace
}  // namespace braid::testing
