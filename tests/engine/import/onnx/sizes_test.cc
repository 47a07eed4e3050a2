// Models whose inputs leave sizes open: what is translated without knowing them, what stays known, and sizes
// that are given when a model is imported.
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "proto/graph.pb.h"
#include "tests/engine/import/onnx/onnx_model.h"

namespace braid::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pointwise;

const std::string kImage = onnx_input("x", kOnnxFloat, {-1, 1, -1, -1});

std::string constant(const std::string& name, const std::string& dims, const std::string& values) {
  return "initializer { name: \"" + name + "\" data_type: 7 dims: [" + dims + "] int64_data: [" + values +
         "] } ";
}
std::string node(const std::string& op, const std::string& inputs, const std::string& output,
                 const std::string& attributes = "") {
  std::string text = "node { op_type: \"" + op + "\" ";
  for (std::size_t at = 0; at < inputs.size();) {
    const std::size_t end = std::min(inputs.find(' ', at), inputs.size());
    text += "input: \"" + inputs.substr(at, end - at) + "\" ";
    at = end + 1;
  }
  return text + "output: \"" + output + "\" " + attributes + "} ";
}

/// 0, 1, 2, ...
Tensor counting(Shape shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  std::iota(values.begin(), values.end(), 0.0F);
  return floats(std::move(shape), values);
}

TEST(OnnxSizesTest, PoolingThatRoundsUpTakesImagesOfAnySize) {
  const std::string window = ints("kernel_shape", "2, 2") + ints("strides", "2, 2") + number("ceil_mode", 1);
  const std::string max = onnx_model(13, node("MaxPool", "x", "y", window) + kImage + kY);
  EXPECT_THAT(float_values(run_onnx(max, {{"x", counting({1, 1, 3, 3})}})), ElementsAre(4, 5, 7, 8));
  EXPECT_THAT(float_values(run_onnx(max, {{"x", counting({1, 1, 2, 4})}})), ElementsAre(5, 7));
  const std::string mean = onnx_model(13, node("AveragePool", "x", "y", window) + kImage + kY);
  EXPECT_THAT(float_values(run_onnx(mean, {{"x", counting({1, 1, 3, 3})}})), ElementsAre(2, 3.5, 6.5, 8));
}

TEST(OnnxSizesTest, PoolingOfSeriesIsThatOfImagesOfOneRow) {
  const std::string series = onnx_input("x", kOnnxFloat, {1, 1, -1});
  const auto pooled = [&](const std::string& op, const std::string& window, std::int64_t length) {
    return float_values(run_onnx(onnx_model(19, node(op, "x", "y", window) + series + kY),
                                 {{"x", counting({1, 1, length})}}));
  };
  const std::string three = ints("kernel_shape", "3") + ints("strides", "2") + ints("pads", "1, 1");
  EXPECT_THAT(pooled("MaxPool", three, 5), ElementsAre(1, 3, 4));
  EXPECT_THAT(pooled("AveragePool", three, 5), ElementsAre(0.5, 2, 3.5));
  EXPECT_THAT(pooled("AveragePool", three + number("count_include_pad", 1), 6),
              Pointwise(FloatEq(), {1.0F / 3, 2.0F, 4.0F}));
  const std::string up = ints("kernel_shape", "2") + ints("strides", "2") + number("ceil_mode", 1);
  EXPECT_THAT(pooled("MaxPool", up, 5), ElementsAre(1, 3, 4));
  EXPECT_THAT(pooled("AveragePool", up, 5), ElementsAre(0.5, 2.5, 4));
}

/// Pads count as zeros, but not what ceil_mode adds behind them.
TEST(OnnxSizesTest, AveragesCountPadsWhereTheyAreAskedTo) {
  const std::string window = ints("kernel_shape", "2, 2") + ints("strides", "2, 2") +
                             ints("pads", "1, 0, 0, 0") + number("count_include_pad", 1);
  const std::string image = onnx_input("x", kOnnxFloat, {1, 1, 3, 3});
  const auto averaged = [&](const std::string& attributes) {
    return float_values(run_onnx(onnx_model(19, node("AveragePool", "x", "y", attributes) + image + kY),
                                 {{"x", counting({1, 1, 3, 3})}}));
  };
  EXPECT_THAT(averaged(window), ElementsAre(0.25, 5));
  EXPECT_THAT(averaged(window + number("ceil_mode", 1)), ElementsAre(0.25, 1, 5, 6.5));
}

TEST(OnnxSizesTest, SamePadsOfImagesOfAnySize) {
  const std::string window =
      ints("kernel_shape", "2, 2") + ints("strides", "2, 2") + text("auto_pad", "SAME_UPPER");
  const std::string max = onnx_model(13, node("MaxPool", "x", "y", window) + kImage + kY);
  EXPECT_THAT(float_values(run_onnx(max, {{"x", counting({1, 1, 3, 3})}})), ElementsAre(4, 5, 7, 8));
  const std::string filter =
      "initializer { name: \"w\" data_type: 1 dims: [1, 1, 2, 2] float_data: [1, 1, 1, 1] } ";
  const std::string conv = onnx_model(13, node("Conv", "x w", "y", window) + filter + kImage + kY);
  EXPECT_THAT(float_values(run_onnx(conv, {{"x", counting({1, 1, 3, 3})}})), ElementsAre(8, 7, 13, 8));
}

TEST(OnnxSizesTest, TransposedConvolutionsTakeImagesOfAnySize) {
  const std::string filter =
      "initializer { name: \"w\" data_type: 1 dims: [1, 1, 2, 2] float_data: [1, 2, 3, 4] } ";
  const std::string conv =
      onnx_model(13, node("ConvTranspose", "x w", "y", ints("strides", "2, 2")) + filter + kImage + kY);
  const Tensor y = run_onnx(conv, {{"x", floats({1, 1, 1, 2}, {1, 10})}});
  EXPECT_EQ(y.shape(), Shape({1, 1, 2, 4}));
  EXPECT_THAT(float_values(y), ElementsAre(1, 2, 10, 20, 3, 4, 30, 40));
}

TEST(OnnxSizesTest, ABiasOfZerosGoesWhereItsShapeDoesNotFit) {
  const std::string filter = "initializer { name: \"w\" data_type: 1 dims: [1, 1, 1, 1, 1] float_data: 2 } ";
  const auto conv = [&](const std::string& dims) {
    return onnx_model(18, node("Conv", "x w b", "y") + filter + "initializer { name: \"b\" data_type: 1 " +
                              dims + " } " + onnx_input("x", kOnnxFloat, {1, 1, 1, 1, 2}) + kY);
  };
  const std::string other = conv("dims: [1, 2] float_data: [0, 0]");
  EXPECT_THAT(float_values(run_onnx(other, {{"x", floats({1, 1, 1, 1, 2}, {3, 4})}})), ElementsAre(6, 8));
  const auto is_read = [&](const std::string& model) {
    const TempDir dir;
    const OnnxImport imported = import_onnx(write_onnx(dir, model));
    return std::any_of(imported.graph.node().begin(), imported.graph.node().end(), [](const NodeDef& n) {
      return std::find(n.input().begin(), n.input().end(), "b") != n.input().end();
    });
  };
  EXPECT_FALSE(is_read(other));
  EXPECT_TRUE(is_read(conv("dims: [1] float_data: 0"))) << "it may be trained";
}

int count_of(const GraphDef& graph, const std::string& op) {
  return static_cast<int>(std::count_if(graph.node().begin(), graph.node().end(),
                                        [&](const NodeDef& n) { return n.op() == op; }));
}

TEST(OnnxSizesTest, ANumberForEachColumnOfGemmIsABias) {
  const std::string w =
      "initializer { name: \"w\" data_type: 1 dims: [2, 3] float_data: [1, 0, 2, 0, 1, 1] } ";
  const auto gemm = [&](const std::string& c, const std::string& attributes) {
    return onnx_model(18, node("Gemm", "x w c", "y", attributes) + w +
                              "initializer { name: \"c\" data_type: 1 " + c + " } " +
                              onnx_input("x", kOnnxFloat, {-1, 2}) + kY);
  };
  const auto biases_of = [&](const std::string& model) {
    const TempDir dir;
    return count_of(import_onnx(write_onnx(dir, model)).graph, "BiasAdd");
  };
  const Feeds feeds{{"x", floats({2, 2}, {1, 2, 3, 4})}};
  const std::string bias = gemm("dims: [3] float_data: [10, 20, 30]", "");
  EXPECT_EQ(biases_of(bias), 1);
  EXPECT_THAT(float_values(run_onnx(bias, feeds)), ElementsAre(11, 22, 34, 13, 24, 40));
  for (const char* dims : {"dims: [1] float_data: 5", "dims: [1, 3] float_data: [5, 5, 5]"}) {
    const std::string other = gemm(dims, "");
    EXPECT_EQ(biases_of(other), 0) << dims;
    EXPECT_THAT(float_values(run_onnx(other, feeds)), ElementsAre(6, 7, 9, 8, 9, 15));
  }
}

TEST(OnnxSizesTest, IndicesOfAnyAxisAreAGatherWhereItLies) {
  const std::string x = onnx_input("x", kOnnxFloat, {-1, 3, 2});
  // x[:, [2, 0]] as PyTorch writes it; the second order is not the first one's opposite.
  for (const bool back : {true, false}) {
    const std::string model =
        onnx_model(18, node("Transpose", "x", "t", ints("perm", "1, 0, 2")) + constant("i", "2, 1", "2, -3") +
                           node("GatherND", "t i", "g") +
                           node("Transpose", "g", "y", ints("perm", back ? "1, 0, 2" : "2, 1, 0")) + x + kY);
    const Tensor y = run_onnx(model, {{"x", counting({2, 3, 2})}});
    if (back)
      EXPECT_THAT(float_values(y), ElementsAre(4, 5, 0, 1, 10, 11, 6, 7));
    else
      EXPECT_THAT(float_values(y), ElementsAre(4, 0, 10, 6, 5, 1, 11, 7));
    const TempDir dir;
    const OnnxImport imported = import_onnx(write_onnx(dir, model));
    EXPECT_EQ(count_of(imported.graph, "GatherNd"), 0);
    EXPECT_EQ(count_of(imported.graph, "GatherV2"), 2)
        << "the one that nobody reads goes when it is compiled";
  }
}

/// x[:, from:] beside x[:, :to].
std::string halves_joined(const std::string& x, const std::string& y, const std::string& from,
                          const std::string& to) {
  const std::string own = y + "_";
  return constant(own + "f", "1", from) + constant(own + "t", "1", to) + constant(own + "0", "1", "0") +
         constant(own + "a", "1", "1") + constant(own + "e", "1", "9223372036854775807") +
         node("Slice", x + " " + own + "f " + own + "e " + own + "a", own + "b") +
         node("Slice", x + " " + own + "0 " + own + "t " + own + "a", own + "c") +
         node("Concat", own + "b " + own + "c", y, number("axis", 1));
}

TEST(OnnxSizesTest, SlicesThatChangePlacesAreARoll) {
  const std::string x = onnx_input("x", kOnnxFloat, {-1, 4});
  const auto rolls_of = [](const std::string& model) {
    const TempDir dir;
    return count_of(import_onnx(write_onnx(dir, model)).graph, "Roll");
  };
  const Feeds feeds{{"x", counting({2, 4})}};
  const auto model = [&](const std::string& from, const std::string& to) {
    return onnx_model(18, halves_joined("x", "y", from, to) + x + kY);
  };
  EXPECT_THAT(float_values(run_onnx(model("1", "1"), feeds)), ElementsAre(1, 2, 3, 0, 5, 6, 7, 4));
  EXPECT_THAT(float_values(run_onnx(model("-1", "-1"), feeds)), ElementsAre(3, 0, 1, 2, 7, 4, 5, 6));
  EXPECT_EQ(rolls_of(model("1", "1")), 1);
  EXPECT_EQ(rolls_of(model("-1", "-1")), 1);
  EXPECT_THAT(float_values(run_onnx(model("1", "2"), feeds)), ElementsAre(1, 2, 3, 0, 1, 5, 6, 7, 4, 5));
  EXPECT_EQ(rolls_of(model("1", "2")), 0);
  EXPECT_EQ(rolls_of(model("5", "5")), 0) << "behind the end";
  const std::string twice =
      onnx_model(18, halves_joined("x", "z", "1", "1") + halves_joined("z", "y", "2", "2") + x + kY);
  EXPECT_THAT(float_values(run_onnx(twice, feeds)), ElementsAre(3, 0, 1, 2, 7, 4, 5, 6));
}

Shape shape_of_y(const std::string& model) {
  const TempDir dir;
  return import_onnx(write_onnx(dir, model)).outputs.at(0).shape;
}

TEST(OnnxSizesTest, WhatAReshapeCopiesOrComputesStaysKnown) {
  const std::string x = onnx_input("x", kOnnxFloat, {6, -1, 2, 5});
  EXPECT_EQ(shape_of_y(onnx_model(14, node("Reshape", "x s", "y") + constant("s", "3", "0, 0, -1") + x + kY)),
            Shape({6, Shape::kUnknown, 10}));
  // [6] ++ Shape(x)[1:2] ++ [10], as exporters write it.
  const std::string parts = node("Shape", "x", "sizes") + node("Slice", "sizes one two", "batch") +
                            node("Concat", "six batch ten", "s", number("axis", 0)) +
                            constant("one", "1", "1") + constant("two", "1", "2") +
                            constant("six", "1", "6") + constant("ten", "1", "10");
  EXPECT_EQ(shape_of_y(onnx_model(14, parts + node("Reshape", "x s", "y") + x + kY)),
            Shape({6, Shape::kUnknown, 10}));
  const std::string small = onnx_input("x", kOnnxFloat, {6, -1, 1});
  EXPECT_EQ(shape_of_y(onnx_model(14, parts + node("Expand", "x s", "y") + small + kY)),
            Shape({6, Shape::kUnknown, 10}));
}

const std::string kRecurrent = node("RNN", "x w r", "y", number("hidden_size", 1)) +
                               onnx_input("x", kOnnxFloat, {-1, 1, 1}) +
                               "initializer { name: \"w\" data_type: 1 dims: [1, 1, 1] float_data: 1 } "
                               "initializer { name: \"r\" data_type: 1 dims: [1, 1, 1] float_data: 0 } " +
                               kY;

TEST(OnnxSizesTest, AShapeThatIsGivenTellsHowLongASequenceIs) {
  const TempDir dir;
  const std::string file = write_onnx(dir, onnx_model(14, kRecurrent));
  const OnnxImport open = try_import_onnx(file);
  ASSERT_EQ(open.problems.size(), 1U);
  EXPECT_THAT(open.problems[0].reason, HasSubstr("size of axis 0 of an input is not known (--shape"));
  const OnnxImport given = try_import_onnx(file, {{"x", Shape({3, 1, 1})}});
  EXPECT_THAT(given.problems, IsEmpty());
  EXPECT_EQ(given.outputs.at(0).shape, Shape({3, 1, 1, 1}));
}

TEST(OnnxSizesTest, AShapeThatContradictsTheModelIsRefused) {
  const TempDir dir;
  const OnnxImport model =
      try_import_onnx(write_onnx(dir, onnx_model(14, kRecurrent)), {{"x", Shape({3, 2, 1})}});
  ASSERT_FALSE(model.problems.empty());
  EXPECT_EQ(model.problems[0].reason, "it is to have shape [3, 2, 1], the model says [?, 1, 1]");
}

TEST(OnnxSizesTest, ALoopWhoseConditionIsKnownGathersASequence) {
  // do { parts += x } while (++i < 2)
  const std::string body =
      "attribute { name: \"body\" type: GRAPH g { input { name: \"round\" } input { name: \"going\" } "
      "input { name: \"i\" } input { name: \"parts\" } " +
      node("Add", "i one", "next") + node("Less", "next two", "more") +
      node("SequenceInsert", "parts x", "longer") +
      "output { name: \"more\" } output { name: \"next\" } output { name: \"longer\" } } } ";
  const std::string model = onnx_model(
      16, node("SequenceEmpty", "", "none") +
              "node { op_type: \"Loop\" input: \"\" input: \"go\" input: \"zero\" input: \"none\" "
              "output: \"last\" output: \"all\" " +
              body + "} " + node("ConcatFromSequence", "all", "y", number("axis", 0)) +
              "initializer { name: \"go\" data_type: 9 int32_data: 1 } " + constant("zero", "", "0") +
              constant("one", "", "1") + constant("two", "", "2") + onnx_input("x", kOnnxFloat, {2}) + kY);
  EXPECT_THAT(float_values(run_onnx(model, {{"x", floats({2}, {3, 4})}})), ElementsAre(3, 4, 3, 4));
}

}  // namespace
}  // namespace braid::testing
