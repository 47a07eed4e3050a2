#include "worker/strategies/bucket_places.h"

#include <gtest/gtest.h>

#include "engine/ir/op.h"

namespace braid::worker {
namespace {

class BucketPlacesTest : public ::testing::Test {
 protected:
  using Buckets = std::vector<std::vector<VariableGradient>>;

  ValueRef add(const std::string& op, std::vector<ValueRef> inputs) {
    Node node;
    node.name = graph_.unique_name(op);
    node.op = &OpRegistry::global().require(op);
    node.attrs = {{"dtype", DType::Float32}, {"shape", Shape{4}}};
    node.inputs = std::move(inputs);
    return {graph_.add(std::move(node)), 0};
  }
  /// Of 400 bytes.
  static VariableGradient dense(ValueRef value) {
    VariableGradient gradient;
    gradient.variable.shape = Shape{100};
    gradient.dense = value;
    return gradient;
  }
  static VariableGradient rows(ValueRef values) {
    VariableGradient gradient;
    gradient.slices = IndexedSlices{values, values};
    return gradient;
  }

  Graph graph_;
  const ValueRef loss_ = add("Placeholder", {});
  const ValueRef joined_ = add("Identity", {loss_});  // of what tables and a layer below are gradients
  const ValueRef early_ = add("Identity", {loss_}), late_ = add("Identity", {joined_});
  const ValueRef values_ = add("Identity", {joined_});
};

TEST_F(BucketPlacesTest, WhatIsMadeBesideTheRowsGoesBehind) {
  const Buckets buckets{{dense(early_)}, {dense(early_)}, {dense(late_)}, {dense(early_), dense(late_)}};
  EXPECT_EQ(buckets_before_rows(graph_, buckets, {rows(values_)}, 0), 2U);
  EXPECT_EQ(buckets_before_rows(graph_, buckets, {}, 0), 3U);
}

TEST_F(BucketPlacesTest, TheLastBucketIsAlwaysBehind) {
  EXPECT_EQ(buckets_before_rows(graph_, {{dense(early_)}, {dense(early_)}}, {rows(values_)}, 0), 1U);
  EXPECT_EQ(buckets_before_rows(graph_, {{dense(early_)}}, {rows(values_)}, 1e9), 0U);
}

TEST_F(BucketPlacesTest, SomeOfTheLastOnesBeforeGoBehindToo) {
  const Buckets buckets{{dense(early_)}, {dense(early_)}, {dense(early_)}, {dense(early_)},
                        {dense(early_)}, {dense(early_)}, {dense(early_)}, {dense(late_)}};
  EXPECT_EQ(buckets_before_rows(graph_, buckets, {rows(values_)}, 399), 7U);
  EXPECT_EQ(buckets_before_rows(graph_, buckets, {rows(values_)}, 400), 6U);
  EXPECT_EQ(buckets_before_rows(graph_, buckets, {rows(values_)}, 1e9), 5U) << "no more than a quarter";
}

}  // namespace
}  // namespace braid::worker
