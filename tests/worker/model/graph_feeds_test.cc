// Columns at placeholders of other names, types and shapes.
#include <gmock/gmock.h>

#include "engine/ir/op.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/support/message_of.h"
#include "tests/worker/model/graph_model.h"

namespace braid::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GraphFeedsTest : public GraphModelTest {
 protected:
  /// A loss of whatever float value, with a variable.
  std::string loss_of(const Output& value) {
    const Output w = variable("w", {}, zeros({}));
    return "loss: '" + b.reduce_mean(b.mul(b.op("Reshape", {value, b.constant(minus_one())}), w)).name() +
           "' ";
  }
  static Tensor minus_one() { return Tensor::from<std::int32_t>({1}, std::vector<std::int32_t>{-1}); }
  Output as_float(const Output& value, DType from) {
    return b.op("Cast", {value}, {{"SrcT", from}, {"DstT", DType::Float32}});
  }
};

TEST_F(GraphFeedsTest, AColumnBecomesTheTypeAndShapeThatTheGraphWants) {
  columns.push_back({"image", DType::Float32, {4}});
  const Output image = b.placeholder("input_1", DType::Float64, {-1, 2, 2, 1});
  const ModelGraph model =
      build(loss_of(as_float(image, DType::Float64)) + "feeds { value: 'input_1' column: 'image' }");
  const Graph graph = graph_of(model);
  EXPECT_EQ(node_of(graph, "image").outputs[0].shape, (Shape{-1, 4}));
  EXPECT_EQ(node_of(graph, "image/reshaped").outputs[0].shape, (Shape{-1, 2, 2, 1}));
  EXPECT_EQ(graph.info({graph.find("image/as_float64"), 0}).dtype, DType::Float64);
  EXPECT_THAT(model.columns, ElementsAre("image"));
}

TEST_F(GraphFeedsTest, APlaceholderOfTheColumnsNameMayHaveAnotherType) {
  const Output ids = b.placeholder("ids", DType::Int32, {-1, 2});
  const Graph graph = graph_of(build(loss_of(as_float(ids, DType::Int32))));
  EXPECT_EQ(node_of(graph, "ids").outputs[0].dtype, DType::Int64) << "as the data has it";
  EXPECT_EQ(graph.find("ids/of_graph"), kNoNode) << "the graph's own falls away";
}

TEST_F(GraphFeedsTest, WholeNumbersAreFedFromFloatsAndFractionsEndTheStep) {
  const Output image = b.placeholder("pixels", DType::Int64, {-1, 3});
  const Graph graph =
      graph_of(build(loss_of(as_float(image, DType::Int64)) + "feeds { value: 'pixels' column: 'x' }"));
  Interpreter interpreter(graph);
  const auto run = [&](float third) {
    const Tensor x = Tensor::from<float>({1, 3}, std::vector<float>{1, 250, third});
    return interpreter.run({{"x", x}}, {"x/as_int64"})[0].data<std::int64_t>()[2];
  };
  EXPECT_EQ(run(-3), -3);
  EXPECT_THAT(message_of([&] { run(0.5F); }),
              HasSubstr("column 'x' has numbers that are not whole, and feeds 'pixels', which takes int64"));
}

TEST_F(GraphFeedsTest, NumbersThatTheGraphsIntegersDoNotHoldEndTheStep) {
  const Output narrow = b.placeholder("ids", DType::Int32, {-1, 2});
  const Graph graph = graph_of(build(loss_of(as_float(narrow, DType::Int32))));
  Interpreter interpreter(graph);
  const auto run = [&](std::int64_t second) {
    const Tensor ids = Tensor::from<std::int64_t>({1, 2}, std::vector<std::int64_t>{7, second});
    return interpreter.run({{"ids", ids}}, {"ids/as_int32"})[0].data<std::int32_t>()[1];
  };
  for (const std::int64_t held : {-(std::int64_t{1} << 31), (std::int64_t{1} << 31) - 1, std::int64_t{0}})
    EXPECT_EQ(run(held), held);
  for (const std::int64_t wraps : {std::int64_t{1} << 31, -(std::int64_t{1} << 31) - 1, std::int64_t{1} << 32,
                                   std::numeric_limits<std::int64_t>::max()})
    EXPECT_THAT(message_of([&] { run(wraps); }),
                HasSubstr("column 'ids' has a number that int32 does not hold, and feeds 'ids'"))
        << wraps;
}

TEST_F(GraphFeedsTest, FloatsThatTheGraphsIntegersDoNotHoldEndTheStep) {
  const Output image = b.placeholder("pixels", DType::UInt8, {-1, 3});
  const Graph graph =
      graph_of(build(loss_of(as_float(image, DType::UInt8)) + "feeds { value: 'pixels' column: 'x' }"));
  Interpreter interpreter(graph);
  const auto run = [&](float third) {
    const Tensor x = Tensor::from<float>({1, 3}, std::vector<float>{1, 255, third});
    return interpreter.run({{"x", x}}, {"x/as_uint8"})[0].data<std::uint8_t>()[2];
  };
  EXPECT_EQ(run(0), 0);
  for (const float wraps : {256.0F, -1.0F, 1e30F})
    EXPECT_THAT(message_of([&] { run(wraps); }),
                HasSubstr("column 'x' has a number that uint8 does not hold"))
        << wraps;
}

TEST_F(GraphFeedsTest, RowsThatDoNotFitAreRefused) {
  const Output wide = b.placeholder("x", DType::Float32, {-1, 7});
  EXPECT_THAT(error_of(loss_of(wide)),
              HasSubstr("'x' is float32 [?, 7], and a row of column 'x' has shape [3]"));
}

TEST_F(GraphFeedsTest, StringsAreRefused) {
  const Output words = b.placeholder("ids", DType::String, {-1, 2});
  const Output hashed = b.op("StringToHashBucketFast", {words}, {{"num_buckets", 10}});
  EXPECT_THAT(error_of(loss_of(as_float(hashed, DType::Int64))),
              HasSubstr("'ids' takes strings, and column 'ids' has int64"));
}

TEST_F(GraphFeedsTest, AnyValueCanBeFed) {
  const Output next = b.op("IteratorGetNext", {},
                           {{"output_types", std::vector<DType>{DType::Float32, DType::Float32}},
                            {"output_shapes", std::vector<Shape>{{-1, 3}, {-1}}}},
                           "next");
  const std::string fields = loss_of(b.add(b.reduce_mean({next.node, 0}), b.reduce_mean({next.node, 1})));
  EXPECT_THAT(
      build(fields + "feeds { value: 'next:0' column: 'x' } feeds { value: 'next:1' column: 'label' }")
          .columns,
      ElementsAre("label", "x"));
  EXPECT_THAT(error_of(fields + "feeds { value: 'next:0' column: 'x' }"),
              AllOf(HasSubstr("[IteratorGetNext] node 'next'"),
                    HasSubstr("feeds { value: \"next:0\" column: \"...\" }    # float32 [?, 3]\n"),
                    HasSubstr("feeds { value: \"next:1\" column: \"...\" }    # float32 [?]")));
}

TEST_F(GraphFeedsTest, ConstantsHaveTheTypeOfWhatTheyFeed) {
  const Output rate = b.placeholder("rate", DType::Float64, {});
  const Output sizes = b.placeholder("sizes", DType::Int32, {2});
  const std::string fields =
      loss_of(b.add(as_float(rate, DType::Float64), b.reduce_mean(as_float(sizes, DType::Int32))));
  const Graph graph = graph_of(
      build(fields + "feeds { value: 'rate' constant: '0.5' } feeds { value: 'sizes' constant: '3,4' }"));
  EXPECT_EQ(node_of(graph, "rate/fed").attrs.require<Tensor>("value").data<double>()[0], 0.5);
  EXPECT_EQ(node_of(graph, "sizes/fed").attrs.require<Tensor>("value").data<std::int32_t>()[1], 4);
  EXPECT_THAT(
      error_of(fields + "feeds { value: 'rate' constant: 'fast' } feeds { value: 'sizes' constant: '3,4' }"),
      HasSubstr("'rate': 'fast' is no float64"));
}

}  // namespace
}  // namespace braid::testing
