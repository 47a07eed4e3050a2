// Sums of bags that are joined for a layer: who writes the join, in programs for a device.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "engine/compile/compile.h"
#include "engine/ir/op.h"
#include "engine/program/program.h"
#include "tests/engine/testing/assumed_kernels.h"

namespace braid::testing {
namespace {

class JoinBagsTest : public ::testing::Test {
 protected:
  void SetUp() override { assume_cuda_kernels(); }

  ValueRef add(const std::string& op, std::vector<ValueRef> inputs, AttrMap attrs = {},
               const std::string& name = {}) {
    Node node;
    node.name = graph_.unique_name(name.empty() ? op : name);
    node.op = &OpRegistry::global().require(op);
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    return {graph_.add(std::move(node)), 0};
  }
  ValueRef feed(const std::string& name, DType dtype, const Shape& shape) {
    request_.feeds.push_back({name, dtype, shape});
    return add("Placeholder", {}, {{"dtype", dtype}, {"shape", shape}}, name);
  }
  ValueRef bag(const std::string& name, std::int64_t width, const std::string& pooling = "sum") {
    const ValueRef table =
        add("VarHandleOp", {}, {{"dtype", DType::Float32}, {"shape", Shape{9, width}}}, name);
    return add("braid.Bag", {table, feed(name + "_ids", DType::Int64, {5, 3})},
               {{"dtype", DType::Float32}, {"pooling", pooling}});
  }
  /// Beside each other, behind which a layer's work stands.
  ValueRef join(std::vector<ValueRef> parts) {
    parts.push_back(add("Const", {}, {{"dtype", DType::Int32}, {"value", Tensor::scalar<std::int32_t>(1)}}));
    const ValueRef joined = add("ConcatV2", std::move(parts));
    fetch(add("Softmax", {joined}));
    return joined;
  }
  void fetch(ValueRef value) { request_.fetches.push_back(graph_.value_name(value)); }

  /// How many nodes of each of these ops a step has.
  std::map<std::string, int> compiled() {
    CompileOptions options;
    options.domain = Domain::Device;
    const auto program = compile(graph_, request_, options);
    std::map<std::string, int> count;
    for (const ProgramOp& op : program->ops) {
      if (op.op != "ConcatV2" && op.op != "braid.PutColumns" && op.op != "braid.BagMany") continue;
      ++count[op.op];
      const AttrMap& attrs = program->graph.node(op.node).attrs;
      if (attrs.has("join_offsets")) offsets_ = attrs.get("join_offsets", offsets_);
    }
    return count;
  }

  using Count = std::map<std::string, int>;
  using Offsets = std::vector<std::int64_t>;
  Graph graph_;
  CompileRequest request_;
  Offsets offsets_;
};

TEST_F(JoinBagsTest, LookupsWriteTheJoinAndOthersArePutThere) {
  const ValueRef dense = add("Relu", {feed("dense", DType::Float32, {5, 4})});
  join({dense, bag("t", 8), bag("u", 6)});
  EXPECT_EQ(compiled(), (Count{{"braid.BagMany", 1}, {"braid.PutColumns", 1}}));
  EXPECT_EQ(offsets_, (Offsets{4, 12}));
}

TEST_F(JoinBagsTest, WhereThereIsNothingElseNothingIsPut) {
  join({bag("t", 8), bag("u", 6)});
  EXPECT_EQ(compiled(), (Count{{"braid.BagMany", 1}}));
  EXPECT_EQ(offsets_, (Offsets{0, 8}));
}

TEST_F(JoinBagsTest, WhatOthersReadTooStaysApart) {
  const ValueRef read = bag("t", 8);
  fetch(add("Softmax", {read}));
  join({read, bag("u", 8), bag("v", 8)});
  EXPECT_EQ(compiled(), (Count{{"braid.BagMany", 1}, {"braid.PutColumns", 1}}));
  EXPECT_EQ(offsets_, (Offsets{-1, 8, 16}));
}

TEST_F(JoinBagsTest, ASmallPartIsJoinedAsBefore) {
  join({add("Relu", {feed("dense", DType::Float32, {5, 40})}), bag("t", 8), bag("u", 6)});
  EXPECT_EQ(compiled(), (Count{{"ConcatV2", 1}, {"braid.BagMany", 1}}));
}

TEST_F(JoinBagsTest, LookupsOfTwoNodesAreNotOfOneJoin) {
  join({bag("t", 8), bag("u", 6), bag("v", 4, "mean"), bag("w", 4, "mean")});
  EXPECT_EQ(compiled(), (Count{{"braid.BagMany", 2}, {"braid.PutColumns", 1}}));
  EXPECT_EQ(offsets_, (Offsets{0, 8}));
}

}  // namespace
}  // namespace braid::testing
