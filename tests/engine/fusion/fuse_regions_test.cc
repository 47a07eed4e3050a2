// What becomes a region, and what does not.
#include <gtest/gtest.h>

#include "base/init.h"
#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/fusion/region.h"
#include "engine/import/import.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

struct Model {
  GraphBuilder b;
  CompileRequest request;

  Output feed(const std::string& name, const Shape& shape) {
    request.feeds.push_back({name, DType::Float32, shape});
    return b.placeholder(name, DType::Float32, shape);
  }
  Output sum(const Output& x, int axis) {
    return b.op("Mean", {x, b.constant(Tensor::scalar<std::int32_t>(axis), "axis")}, {{"keep_dims", true}});
  }
  std::shared_ptr<const Program> compiled(std::initializer_list<Output> fetches, bool fusion = true) {
    for (const Output& fetch : fetches) request.fetches.push_back(fetch.name());
    CompileOptions options;
    options.fusion = fusion;
    options.streams.count = 2;
    return compile(import_graph(b.graph()), request, options);
  }
};

TEST(FuseRegionsTest, LayerNormIsOneNode) {
  Model m;
  const Output x = m.feed("x", {6, 40});
  const Output gain = m.feed("gain", {40}), bias = m.feed("bias", {40});
  const Output centred = m.b.op("Sub", {x, m.sum(x, -1)});
  const Output variance = m.sum(m.b.op("Square", {centred}), 1);
  const Output scale =
      m.b.op("Rsqrt", {m.b.op("AddV2", {variance, m.b.constant(Tensor::scalar(1e-5F), "e")})});
  const Output y = m.b.op("AddV2", {m.b.mul(m.b.mul(centred, scale), gain), bias});
  const auto program = m.compiled({y});
  EXPECT_EQ(program->ops.size(), 1U);
  EXPECT_EQ(count_ops(*program, "braid.Fused"), 1);
}

TEST(FuseRegionsTest, DropoutJoinsWithTheNumbersOfItsName) {
  Model m;
  const Output x = m.feed("x", {6, 40});
  const Output y = m.b.op("braid.Dropout", {m.b.op("Tanh", {x})}, {{"rate", 0.5}}, "drop");
  const auto program = m.compiled({m.b.op("AddV2", {y, x})});
  ASSERT_EQ(program->ops.size(), 1U);
  const auto text = program->graph.node(program->ops[0].node).attrs.require<std::string>("program");
  const fusion::Region region = fusion::Region::parse(text);
  ASSERT_EQ(region.uniforms().size(), 1U) << text;
  EXPECT_EQ(region.step(region.uniforms()[0]).bits, stable_hash("drop"));
}

TEST(FuseRegionsTest, DropoutOfAConstantStaysANode) {
  Model m;
  const Output ones = m.b.constant(Tensor(DType::Float32, Shape{6, 40}), "ones");
  const Output y = m.b.op("braid.Dropout", {ones}, {{"rate", 0.5}});
  const auto program = m.compiled({m.b.op("Exp", {m.b.op("Neg", {y})})});
  EXPECT_EQ(count_ops(*program, "braid.Dropout"), 1);
}

/// The programs of a compiled model's regions, in the order of its ops.
std::vector<fusion::Region> regions_of(const Program& program) {
  std::vector<fusion::Region> regions;
  for (const ProgramOp& op : program.ops)
    if (op.op == "braid.Fused")
      regions.push_back(
          fusion::Region::parse(program.graph.node(op.node).attrs.require<std::string>("program")));
  return regions;
}

TEST(FuseRegionsTest, WhatIsCheapIsComputedAgain) {
  Model m;
  const Output x = m.feed("x", {64, 1024});
  const Output negated = m.b.op("Neg", {x});
  const Output apart = m.b.op("Cumsum", {m.b.op("Abs", {m.b.op("Exp", {negated})}),
                                         m.b.constant(Tensor::scalar<std::int32_t>(1), "axis")});
  const Output y = m.b.op("Tanh", {m.b.op("Mul", {apart, negated})});
  const std::vector<fusion::Region> regions = regions_of(*m.compiled({y}));
  ASSERT_EQ(regions.size(), 2U);
  EXPECT_EQ(regions[0].outputs.size(), 1U) << "not -x too:\n" << regions[0].to_text();
  EXPECT_EQ(regions[1].inputs.size(), 2U) << regions[1].to_text();
  EXPECT_EQ(regions[1].steps.size(), 3U) << "-x again:\n" << regions[1].to_text();
}

TEST(FuseRegionsTest, RowsAreWrittenRatherThanWhatFollowsFromThem) {
  Model m;
  const Output x = m.feed("x", {64, 1024});
  const Output centred = m.b.op("Sub", {x, m.sum(x, -1)});
  const Output twice = m.b.mul(centred, m.b.constant(Tensor::scalar(2.0F), "two"));
  const Output apart =
      m.b.op("Cumsum", {m.b.op("Square", {centred}), m.b.constant(Tensor::scalar<std::int32_t>(1), "axis")});
  const Output y = m.b.op("Tanh", {m.b.op("Mul", {apart, twice})});
  const std::vector<fusion::Region> regions = regions_of(*m.compiled({y}));
  ASSERT_EQ(regions.size(), 2U);
  std::int64_t written = 0;
  for (const fusion::Region::Output& output : regions[0].outputs) written += output.shape.elements();
  EXPECT_EQ(written, 64 * 1024 + 64) << regions[0].to_text();
}

TEST(FuseRegionsTest, SmallValuesAreReadRatherThanComputedAgain) {
  Model m;
  const Output x = m.feed("x", {4, 8});
  const Output negated = m.b.op("Neg", {x});
  const Output apart =
      m.b.op("Cumsum", {m.b.op("Abs", {negated}), m.b.constant(Tensor::scalar<std::int32_t>(1), "axis")});
  const std::vector<fusion::Region> regions =
      regions_of(*m.compiled({m.b.op("Tanh", {m.b.op("Mul", {apart, negated})})}));
  ASSERT_EQ(regions.size(), 2U);
  EXPECT_EQ(regions[0].outputs.size(), 2U);
}

TEST(FuseRegionsTest, PartsAreReadAndWrittenWhereTheyAre) {
  Model m;
  const Output x = m.feed("x", {64, 96});
  const Output parts =
      m.b.op("Split", {m.b.constant(Tensor::scalar<std::int32_t>(1), "axis"), x}, {{"num_split", 3}});
  const Output gate = m.b.op("Sigmoid", {{parts.node, 0}});
  const Output y = m.b.concat({gate, m.b.op("Tanh", {{parts.node, 2}}), m.b.mul(gate, {parts.node, 1})}, 1);
  const auto program =
      m.compiled({m.b.op("Cumsum", {y, m.b.constant(Tensor::scalar<std::int32_t>(0), "a")})});
  EXPECT_EQ(count_ops(*program, "Split"), 0);
  EXPECT_EQ(count_ops(*program, "ConcatV2"), 0);
  const std::vector<fusion::Region> regions = regions_of(*program);
  ASSERT_EQ(regions.size(), 1U);
  EXPECT_EQ(regions[0].inputs.size(), 3U) << regions[0].to_text();
  EXPECT_EQ(regions[0].tensors(), (std::vector<int>{0, 0, 0})) << regions[0].to_text();
}

TEST(FuseRegionsTest, OfASplitThatRegionsReadInPartTheRestIsASlice) {
  Model m;
  const Output x = m.feed("x", {40, 30}), w = m.feed("w", {10, 10});
  const Output parts =
      m.b.op("Split", {m.b.constant(Tensor::scalar<std::int32_t>(1), "axis"), x}, {{"num_split", 3}});
  const auto part = [&](int i) { return Output{parts.node, i}; };
  const Output product = m.b.matmul(part(1), w);
  const Output gate = m.b.mul(m.b.op("Tanh", {part(0)}), m.b.op("Sigmoid", {part(2)}));
  const auto program = m.compiled({product, gate});
  EXPECT_EQ(count_ops(*program, "Split"), 0);
  ASSERT_EQ(count_ops(*program, "Slice"), 1);
  for (const ProgramOp& op : program->ops) {
    if (op.op != "Slice") continue;
    const Node& node = program->graph.node(op.node);
    EXPECT_EQ(node.outputs[0].shape, (Shape{40, 10}));
    EXPECT_EQ(tensor_to_int64s(*program->graph.known_value(node.inputs[1])),
              (std::vector<std::int64_t>{0, 10}));
  }
}

TEST(FuseRegionsTest, PairsAreUnpackedAndPackedWhereTheyAre) {
  Model m;
  const Output x = m.feed("x", {16, 4, 8, 2}), angles = m.feed("angles", {8});
  const Output parts = m.b.op("Unpack", {x}, {{"num", 2}, {"axis", -1}}), other{parts.node, 1};
  const Output cos = m.b.op("Cos", {angles}), sin = m.b.op("Sin", {angles});
  const Output a = m.b.op("Sub", {m.b.mul(parts, cos), m.b.mul(other, sin)});
  const Output b = m.b.add(m.b.mul(parts, sin), m.b.mul(other, cos));
  const Output turned = m.b.op("Pack", {a, b}, {{"N", 2}, {"axis", std::int64_t{-1}}});
  const auto program =
      m.compiled({m.b.op("Cumsum", {turned, m.b.constant(Tensor::scalar<std::int32_t>(0), "a")})});
  EXPECT_EQ(count_ops(*program, "Unpack"), 0);
  EXPECT_EQ(count_ops(*program, "Pack"), 0);
}

TEST(FuseRegionsTest, APartThatOthersReadIsWrittenTwice) {
  Model m;
  const Output x = m.feed("x", {64, 32});
  const Output axis = m.b.constant(Tensor::scalar<std::int32_t>(0), "axis");
  const Output left = m.b.op("Exp", {x}), right = m.b.op("Neg", {left});
  const auto program =
      m.compiled({m.b.op("Cumsum", {m.b.concat({left, right}, 1), axis}), m.b.op("Cumsum", {left, axis})});
  const std::vector<fusion::Region> regions = regions_of(*program);
  ASSERT_EQ(regions.size(), 1U);
  EXPECT_EQ(regions[0].tensors(), (std::vector<int>{0, 1, 1})) << regions[0].to_text();
}

TEST(FuseRegionsTest, AJoinCopiesWhatItsRegionDoesNotMake) {
  Model m;
  const Output x = m.feed("x", {64, 32}), z = m.feed("z", {64, 1});
  const Output y = m.b.op("Neg", {m.b.op("Exp", {x})});
  const Output wide = m.b.op(
      "BroadcastTo",
      {z, m.b.constant(Tensor::from<std::int32_t>(Shape{2}, std::vector<std::int32_t>{64, 32}), "shape")});
  const Output axis = m.b.constant(Tensor::scalar<std::int32_t>(1), "axis");
  const auto program = m.compiled({m.b.op("Cumsum", {m.b.concat({x, y, x, wide}, 1), axis})});
  EXPECT_EQ(count_ops(*program, "ConcatV2") + count_ops(*program, "BroadcastTo"), 0);
  const std::vector<fusion::Region> regions = regions_of(*program);
  ASSERT_EQ(regions.size(), 1U);
  EXPECT_EQ(regions[0].inputs.size(), 2U) << regions[0].to_text();
  EXPECT_EQ(regions[0].tensors(), (std::vector<int>{0, 0, 0, 0})) << regions[0].to_text();
}

TEST(FuseRegionsTest, AJoinStaysWhoseRegionWouldWaitForItself) {
  Model m;
  const Output y = m.b.op("Neg", {m.b.op("Exp", {m.feed("x", {64, 32})})});
  const Output axis = m.b.constant(Tensor::scalar<std::int32_t>(1), "axis");
  const Output late = m.b.op("Cumsum", {y, axis});
  EXPECT_EQ(count_ops(*m.compiled({m.b.op("Cumsum", {m.b.concat({y, late}, 1), axis})}), "ConcatV2"), 1);
}

TEST(FuseRegionsTest, AJoinOfWhatNoRegionMakesStays) {
  Model m;
  const Output x = m.feed("x", {64, 32}), y = m.feed("y", {64, 32});
  const Output axis = m.b.constant(Tensor::scalar<std::int32_t>(1), "axis");
  EXPECT_EQ(count_ops(*m.compiled({m.b.op("Cumsum", {m.b.concat({x, y}, 1), axis})}), "ConcatV2"), 1);
}

TEST(FuseRegionsTest, LongPiecesAreScannedByTheOpOnTheCpu) {
  for (const std::int64_t length : {8192, 8193}) {
    Model m;
    const Output axis = m.b.constant(Tensor::scalar<std::int32_t>(0), "axis");
    const Output sums = m.b.op("Cumsum", {m.b.op("Neg", {m.feed("x", {length, 4})}), axis});
    const auto program = m.compiled({m.b.op("Exp", {sums})});
    EXPECT_EQ(count_ops(*program, "Cumsum"), length > 8192 ? 1 : 0) << length;
  }
}

TEST(FuseRegionsTest, ANodeByItselfReadsAndWritesParts) {
  Model m;
  const Output x = m.feed("x", {64, 96}), y = m.feed("y", {64, 48});
  const Output axis = m.b.constant(Tensor::scalar<std::int32_t>(1), "axis");
  const Output parts = m.b.op("Split", {axis, x}, {{"num_split", 2}});
  const Output gated = m.b.mul({parts.node, 1}, y);
  const auto program = m.compiled({m.b.op("Cumsum", {m.b.concat({gated, y}, 1), axis})});
  EXPECT_EQ(count_ops(*program, "Split") + count_ops(*program, "ConcatV2"), 0);
  EXPECT_EQ(count_ops(*program, "braid.Fused"), 1);
}

TEST(FuseRegionsTest, IsOffWithoutTheOption) {
  Model m;
  const auto program = m.compiled({m.b.op("Tanh", {m.b.op("Exp", {m.feed("x", {8})})})}, false);
  EXPECT_EQ(count_ops(*program, "braid.Fused"), 0);
}

TEST(FuseRegionsTest, AWayThroughAnotherNodeKeepsRegionsApart) {
  Model m;
  const Output y = m.b.op("Exp", {m.feed("x", {4, 5})});
  const Output sums =
      m.b.op("Cumsum", {m.b.op("Neg", {y}), m.b.constant(Tensor::scalar<std::int32_t>(1), "axis")});
  const Output z = m.b.op("AddV2", {m.b.op("Tanh", {y}), m.b.op("Sigmoid", {sums})});
  const auto program = m.compiled({z});
  EXPECT_EQ(count_ops(*program, "braid.Fused"), 2);
  EXPECT_EQ(count_ops(*program, "Cumsum"), 1);
}

TEST(FuseRegionsTest, NodesOfTwoStreamScopesStayApart) {
  Model m;
  Output x = m.feed("x", {8}), y;
  {
    StreamScope scope(m.b, 0);
    x = m.b.op("Tanh", {m.b.op("Exp", {x})});
  }
  {
    StreamScope scope(m.b, 1);
    y = m.b.op("Neg", {m.b.op("Sigmoid", {x})});
  }
  const auto program = m.compiled({y});
  EXPECT_EQ(count_ops(*program, "braid.Fused"), 2);
}

TEST(FuseRegionsTest, WhatComesAfterAWriteIsLeftAlone) {
  Model m;
  const Output v = m.b.variable("v", Shape{8}, {});
  const Output x = m.feed("x", {8});
  const Output write = m.b.op("AssignVariableOp", {v, x});
  const Output later = m.b.op("ReadVariableOp", {v}, {{"dtype", DType::Float32}});
  m.b.control_dependency(write, later);
  const Output before = m.b.op("Exp", {m.b.read(v)});
  const auto program = m.compiled({m.b.op("AddV2", {before, m.b.op("Tanh", {later})})});
  EXPECT_EQ(count_ops(*program, "braid.Fused"), 0);
}

TEST(FuseRegionsTest, AValueThatIsFetchedIsAnOutputToo) {
  Model m;
  const Output e = m.b.op("Exp", {m.feed("x", {3, 7})});
  const auto program = m.compiled({e, m.b.op("Softmax", {e})});
  ASSERT_EQ(program->ops.size(), 1U);
  EXPECT_EQ(program->ops[0].outputs.size(), 2U);
}

}  // namespace
}  // namespace braid::testing
