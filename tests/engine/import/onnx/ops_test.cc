// Operators whose meaning depends on the operator set, on attributes that are left out, or on values that are
// inputs. What the operators compute is tested on ONNX's own cases (tests/cli/graph_import_test.cc).
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine/graph/specialize.h"
#include "engine/import/import.h"
#include "tests/engine/import/onnx/onnx_model.h"

namespace braid::testing {
namespace {

using ::testing::ElementsAre;

/// One node from x, and further inputs of it, to y.
std::string one_node(int opset, const std::string& op, const std::string& attributes,
                     const std::string& inputs) {
  std::string uses;
  for (std::size_t at = 0; (at = inputs.find("name: \"", at)) != std::string::npos;) {
    at += 7;
    uses += "input: \"" + inputs.substr(at, inputs.find('"', at) - at) + "\" ";
  }
  return onnx_model(
      opset, "node { op_type: \"" + op + "\" " + uses + "output: \"y\" " + attributes + "} " + inputs + kY);
}

const std::string kX2x2x1 = onnx_input("x", kOnnxFloat, {2, 2, 1});

TEST(OnnxOpsTest, SoftmaxIsOfOneAxisOrOfAllThatFollow) {
  const Feeds x{{"x", floats({2, 2, 1}, {1, 1, 5, 5})}};
  EXPECT_THAT(float_values(run_onnx(one_node(12, "Softmax", "", kX2x2x1), x)),
              ElementsAre(0.5, 0.5, 0.5, 0.5));
  EXPECT_THAT(float_values(run_onnx(one_node(13, "Softmax", "", kX2x2x1), x)), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(float_values(run_onnx(one_node(12, "Softmax", number("axis", 0), kX2x2x1),
                                    {{"x", floats({2, 2, 1}, {1, 1, 1, 1})}})),
              ElementsAre(0.25, 0.25, 0.25, 0.25));
}

TEST(OnnxOpsTest, ReductionsTakeAxesAsAttributeOrInput) {
  const Tensor x = floats({2, 2, 1}, {1, 2, 3, 4});
  EXPECT_THAT(float_values(run_onnx(
                  one_node(11, "ReduceSum", ints("axes", "0") + number("keepdims", 0), kX2x2x1), {{"x", x}})),
              ElementsAre(4, 6));
  const std::string with_axes = kX2x2x1 + onnx_input("axes", kOnnxInt64, {1});
  EXPECT_THAT(float_values(run_onnx(one_node(13, "ReduceSum", "", with_axes),
                                    {{"x", x}, {"axes", int64s({1}, {-2})}})),
              ElementsAre(3, 7));
  const Tensor none = int64s({0}, {});
  const std::string no_axes = kX2x2x1 + onnx_input("axes", kOnnxInt64, {0});
  EXPECT_THAT(float_values(run_onnx(one_node(13, "ReduceSum", "", no_axes), {{"x", x}, {"axes", none}})),
              ElementsAre(10));
  EXPECT_THAT(float_values(run_onnx(one_node(13, "ReduceSum", number("noop_with_empty_axes", 1), no_axes),
                                    {{"x", x}, {"axes", none}})),
              ElementsAre(1, 2, 3, 4));
}

TEST(OnnxOpsTest, ReshapeCopiesZerosUnlessTheyAreAllowed) {
  const std::string inputs = onnx_input("x", kOnnxFloat, {2, 3}) + onnx_input("shape", kOnnxInt64, {3});
  const Feeds feeds{{"x", floats({2, 3}, {1, 2, 3, 4, 5, 6})}, {"shape", int64s({3}, {0, -1, 1})}};
  EXPECT_EQ(run_onnx(one_node(14, "Reshape", "", inputs), feeds).shape(), Shape({2, 3, 1}));
  const std::string empty = onnx_input("x", kOnnxFloat, {0, 3}) + onnx_input("shape", kOnnxInt64, {2});
  EXPECT_EQ(run_onnx(one_node(14, "Reshape", number("allowzero", 1), empty),
                     {{"x", floats({0, 3}, {})}, {"shape", int64s({2}, {5, 0})}})
                .shape(),
            Shape({5, 0}));
  EXPECT_EQ(run_onnx(one_node(1, "Reshape", ints("shape", "-1, 0"), onnx_input("x", kOnnxFloat, {2, 2, 3})),
                     {{"x", floats({2, 2, 3}, std::vector<float>(12))}})
                .shape(),
            Shape({6, 2}));
}

TEST(OnnxOpsTest, BatchNormOfRowsAndSeriesTakesTheStatisticsOfTheBatch) {
  const Feeds rest{{"scale", floats({1}, {2})},
                   {"bias", floats({1}, {1})},
                   {"mean", floats({1}, {7})},
                   {"var", floats({1}, {9})}};
  const std::string vectors = onnx_input("scale", kOnnxFloat, {1}) + onnx_input("bias", kOnnxFloat, {1}) +
                              onnx_input("mean", kOnnxFloat, {1}) + onnx_input("var", kOnnxFloat, {1});
  const std::string training =
      number("training_mode", 1) + "attribute { name: \"epsilon\" type: FLOAT f: 0 } ";
  for (const std::vector<int>& shape : {std::vector<int>{2, 1}, {1, 1, 2}, {2, 1, 1}, {1, 1, 1, 2}}) {
    Feeds feeds = rest;
    const Tensor x = floats(Shape(std::vector<std::int64_t>(shape.begin(), shape.end())), {1, 3});
    feeds.emplace("x", x);
    const std::string graph =
        one_node(15, "BatchNormalization", training, onnx_input("x", kOnnxFloat, shape) + vectors);
    EXPECT_THAT(float_values(run_onnx(graph, feeds)), ElementsAre(-1, 3)) << x.shape().to_string();
  }
}

TEST(OnnxOpsTest, AttentionTakesBatchesOfAnySize) {
  const std::string inputs = onnx_input("x", kOnnxFloat, {-1, 1, 4}) +
                             onnx_input("k", kOnnxFloat, {-1, 1, 4}) +
                             onnx_input("v", kOnnxFloat, {-1, 1, 4});
  const Tensor values = floats({2, 1, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Tensor y =
      run_onnx(one_node(23, "Attention", number("q_num_heads", 2) + number("kv_num_heads", 2), inputs),
               {{"x", values}, {"k", values}, {"v", values}});
  EXPECT_EQ(y.shape(), Shape({2, 1, 4}));
  EXPECT_THAT(float_values(y), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8)) << "one key each: its value";
}

/// A layer of one unit whose factors are all zero, with its first states 1.
Tensor halving_layer(const std::string& op, int gates, const std::string& attributes, bool has_cell) {
  const std::string states = onnx_input("h", kOnnxFloat, {1, 1, 1}) +
                             (has_cell ? onnx_input("c", kOnnxFloat, {1, 1, 1}) : std::string());
  const std::string inputs =
      onnx_input("x", kOnnxFloat, {3, 1, 1}) + onnx_input("w", kOnnxFloat, {1, gates, 1}) +
      onnx_input("r", kOnnxFloat, {1, gates, 1}) + onnx_input("b", kOnnxFloat, {1, 2 * gates}) + states;
  const std::string node =
      "node { op_type: '" + op + "' input: 'x' input: 'w' input: 'r' input: 'b' input: '' input: 'h' " +
      (has_cell ? "input: 'c' " : "") + "output: 'y' " + number("hidden_size", 1) + attributes + "} ";
  const auto zeros = [](const Shape& shape) {
    return floats(shape, std::vector<float>(static_cast<std::size_t>(shape.elements())));
  };
  Feeds feeds{{"x", floats({3, 1, 1}, {1, 2, 3})},
              {"w", zeros({1, gates, 1})},
              {"r", zeros({1, gates, 1})},
              {"b", zeros({1, 2 * gates})},
              {"h", floats({1, 1, 1}, {1})}};
  if (has_cell) feeds.emplace("c", floats({1, 1, 1}, {1}));
  return run_onnx(onnx_model(14, node + inputs + kY), feeds);
}

TEST(OnnxOpsTest, RecurrentLayersGoOnFromTheirStatesInTheirDirection) {
  const std::string behind = number("linear_before_reset", 1),
                    reverse = "attribute { name: 'direction' type: STRING s: 'reverse' } ";
  EXPECT_THAT(float_values(halving_layer("GRU", 3, behind, false)), ElementsAre(0.5, 0.25, 0.125));
  EXPECT_THAT(float_values(halving_layer("GRU", 3, behind + reverse, false)), ElementsAre(0.125, 0.25, 0.5));
  EXPECT_THAT(float_values(halving_layer("GRU", 3, "", false)), ElementsAre(0.5, 0.25, 0.125));  // unrolled
  using ::testing::FloatNear;
  const auto half_tanh = [](float c) { return FloatNear(std::tanh(c) / 2, 1e-6F); };
  EXPECT_THAT(float_values(halving_layer("LSTM", 4, "", true)),
              ElementsAre(half_tanh(0.5F), half_tanh(0.25F), half_tanh(0.125F)));
}

TEST(OnnxOpsTest, SliceTakesAttributesOrInputs) {
  const std::string x = onnx_input("x", kOnnxFloat, {4});
  const Tensor values = floats({4}, {0, 1, 2, 3});
  EXPECT_THAT(float_values(run_onnx(one_node(9, "Slice", ints("starts", "1") + ints("ends", "-1"), x),
                                    {{"x", values}})),
              ElementsAre(1, 2));
  const std::string inputs = x + onnx_input("starts", kOnnxInt64, {1}) + onnx_input("ends", kOnnxInt64, {1}) +
                             onnx_input("axes", kOnnxInt64, {1}) + onnx_input("steps", kOnnxInt64, {1});
  EXPECT_THAT(float_values(run_onnx(one_node(13, "Slice", "", inputs),
                                    {{"x", values},
                                     {"starts", int64s({1}, {-1})},
                                     {"ends", int64s({1}, {std::numeric_limits<std::int64_t>::min()})},
                                     {"axes", int64s({1}, {0})},
                                     {"steps", int64s({1}, {-2})}})),
              ElementsAre(3, 1));
}

TEST(OnnxOpsTest, NegativePadsCutOff) {
  const std::string x = onnx_input("x", kOnnxFloat, {3});
  EXPECT_THAT(
      float_values(run_onnx(one_node(2, "Pad", ints("pads", "-1, 2"), x), {{"x", floats({3}, {1, 2, 3})}})),
      ElementsAre(2, 3, 0, 0));
}

TEST(OnnxOpsTest, ClipTakesAttributesOrInputs) {
  const std::string x = onnx_input("x", kOnnxFloat, {3});
  const Tensor values = floats({3}, {-5, 0, 5});
  EXPECT_THAT(float_values(run_onnx(one_node(6, "Clip", "attribute { name: \"max\" f: 2 type: FLOAT } ", x),
                                    {{"x", values}})),
              ElementsAre(-5, 0, 2));
  EXPECT_THAT(float_values(run_onnx(one_node(13, "Clip", "", x + onnx_input("low", kOnnxFloat, {})),
                                    {{"x", values}, {"low", floats({}, {-1})}})),
              ElementsAre(-1, 0, 5));
}

TEST(OnnxOpsTest, UnsqueezeAndSqueezeTakeAxesThatAreNotKnown) {
  const std::string axes = onnx_input("axes", kOnnxInt64, {2});
  EXPECT_EQ(run_onnx(one_node(13, "Unsqueeze", "", onnx_input("x", kOnnxFloat, {2, 3}) + axes),
                     {{"x", floats({2, 3}, std::vector<float>(6))}, {"axes", int64s({2}, {-1, 0})}})
                .shape(),
            Shape({1, 2, 3, 1}));
  EXPECT_EQ(run_onnx(one_node(13, "Squeeze", "", onnx_input("x", kOnnxFloat, {1, 2, 1, 1}) + axes),
                     {{"x", floats({1, 2, 1, 1}, {1, 2})}, {"axes", int64s({2}, {-1, 0})}})
                .shape(),
            Shape({2, 1}));
}

TEST(OnnxOpsTest, BroadcastingOfOldOperatorSetsIsAligned) {
  const std::string inputs = onnx_input("x", kOnnxFloat, {2, 2}) + onnx_input("b", kOnnxFloat, {2});
  const Feeds feeds{{"x", floats({2, 2}, {0, 0, 0, 0})}, {"b", floats({2}, {1, 2})}};
  EXPECT_THAT(
      float_values(run_onnx(one_node(6, "Add", number("broadcast", 1) + number("axis", 0), inputs), feeds)),
      ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(float_values(run_onnx(one_node(7, "Add", "", inputs), feeds)), ElementsAre(1, 2, 1, 2));
}

TEST(OnnxOpsTest, UnsignedNumbersOf64BitsDivideAndCompareAsSuch) {
  const std::uint64_t large = 0xfffffffffffffffdU, half = std::uint64_t{1} << 63;
  const std::string inputs = onnx_input("x", kOnnxUInt64, {4}) + onnx_input("b", kOnnxUInt64, {4});
  const Feeds feeds{
      {"x", Tensor::from<std::uint64_t>({4}, std::vector<std::uint64_t>{large, large, 5, half})},
      {"b", Tensor::from<std::uint64_t>({4}, std::vector<std::uint64_t>{10, half, large, half})}};
  const auto values = [&](const std::string& op) {
    const Tensor y = run_onnx(one_node(14, op, "", inputs), feeds);
    const auto data = y.data<std::uint64_t>();
    return std::vector<std::uint64_t>(data.begin(), data.end());
  };
  EXPECT_THAT(values("Div"), ElementsAre(large / 10, 1, 0, 1));
  EXPECT_THAT(values("Mod"), ElementsAre(large % 10, large - half, 5, 0));
  EXPECT_THAT(values("Max"), ElementsAre(large, large, large, half));
}

TEST(OnnxOpsTest, GroupedConvolutionsAreConvolutionsSideBySide) {
  const std::string inputs =
      onnx_input("x", kOnnxFloat, {1, 4, 1, 1}) + onnx_input("w", kOnnxFloat, {2, 2, 1, 1});
  const Feeds feeds{{"x", floats({1, 4, 1, 1}, {1, 2, 3, 4})},
                    {"w", floats({2, 2, 1, 1}, {1, 10, 100, 1000})}};
  EXPECT_THAT(float_values(run_onnx(one_node(11, "Conv", number("group", 2), inputs), feeds)),
              ElementsAre(21, 4300));
  const std::string depthwise =
      onnx_input("x", kOnnxFloat, {1, 2, 1, 2}) + onnx_input("w", kOnnxFloat, {4, 1, 1, 1});
  EXPECT_THAT(float_values(run_onnx(
                  one_node(11, "Conv", number("group", 2), depthwise),
                  {{"x", floats({1, 2, 1, 2}, {1, 2, 3, 4})}, {"w", floats({4, 1, 1, 1}, {1, 2, 3, 4})}})),
              ElementsAre(1, 2, 2, 4, 9, 12, 12, 16));
}

TEST(OnnxOpsTest, ConvolutionsOfThreeAxesAreSumsOverTheFirst) {
  const std::string inputs =
      onnx_input("x", kOnnxFloat, {1, 1, 3, 2, 2}) + onnx_input("w", kOnnxFloat, {1, 1, 2, 2, 2});
  std::vector<float> x(12), w(8, 1.0F);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const Tensor y = run_onnx(one_node(11, "Conv", ints("pads", "1, 0, 0, 0, 0, 0"), inputs),
                            {{"x", floats({1, 1, 3, 2, 2}, x)}, {"w", floats({1, 1, 2, 2, 2}, w)}});
  EXPECT_EQ(y.shape(), Shape({1, 1, 3, 1, 1}));
  EXPECT_THAT(float_values(y), ElementsAre(6, 28, 60));
}

TEST(OnnxOpsTest, UpsampleTakesScalesAsAttributeOrInput) {
  const Tensor x = floats({1, 1, 1, 2}, {1, 2});
  const std::string input = onnx_input("x", kOnnxFloat, {1, 1, 1, 2});
  EXPECT_THAT(
      float_values(run_onnx(
          one_node(7, "Upsample", "attribute { name: \"scales\" floats: [1, 1, 1, 2] type: FLOATS } ", input),
          {{"x", x}})),
      ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(float_values(run_onnx(one_node(10, "Resize", text("mode", "linear"),
                                             input + onnx_input("scales", kOnnxFloat, {4})),
                                    {{"x", x}, {"scales", floats({4}, {1, 1, 1, 2})}})),
              ElementsAre(1, 1.5, 2, 2));
}

TEST(OnnxOpsTest, EinsumTakesDiagonalsAndMoreThanTwoOperands) {
  const std::string equation = text("equation", "ii->i");
  EXPECT_THAT(float_values(run_onnx(one_node(12, "Einsum", equation, onnx_input("x", kOnnxFloat, {2, 2})),
                                    {{"x", floats({2, 2}, {1, 2, 3, 4})}})),
              ElementsAre(1, 4));
  const std::string three =
      onnx_input("x", kOnnxFloat, {2}) + onnx_input("b", kOnnxFloat, {2}) + onnx_input("c", kOnnxFloat, {2});
  EXPECT_THAT(float_values(run_onnx(
                  one_node(12, "Einsum", text("equation", "i,i,j->j"), three),
                  {{"x", floats({2}, {1, 2})}, {"b", floats({2}, {3, 4})}, {"c", floats({2}, {1, 10})}})),
              ElementsAre(11, 110));
}

TEST(OnnxOpsTest, EinsumOfMoreThanTwoOperandsMakesNoProductOfAllLabels) {
  // Gated experts: the gates scale, the rest is one product. 3 x 2 x 4 x 5 numbers would be all labels.
  const std::string inputs = onnx_input("x", kOnnxFloat, {3, 2, 4}) + onnx_input("b", kOnnxFloat, {2, 4, 5}) +
                             onnx_input("c", kOnnxFloat, {3, 2});
  const std::string model = one_node(12, "Einsum", text("equation", "beo,eoi,be->bi"), inputs);
  Feeds feeds;
  for (const auto& [name, shape] :
       {std::pair<const char*, Shape>{"x", {3, 2, 4}}, {"b", {2, 4, 5}}, {"c", {3, 2}}}) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < shape.elements(); ++i) values.push_back(static_cast<float>(i * 7 % 5 - 2));
    feeds.emplace(name, floats(shape, values));
  }
  const std::vector<float> x = float_values(feeds.at("x")), w = float_values(feeds.at("b")),
                           gates = float_values(feeds.at("c"));
  std::vector<float> expected(15);
  for (std::size_t at = 0; at < 3 * 2 * 4 * 5; ++at) {
    const std::size_t i = at % 5, o = at / 5 % 4, e = at / 20 % 2, b = at / 40;
    expected[b * 5 + i] += x[(b * 2 + e) * 4 + o] * w[(e * 4 + o) * 5 + i] * gates[b * 2 + e];
  }
  EXPECT_EQ(float_values(run_onnx(model, feeds)), expected);
  const TempDir dir;
  const Graph graph = specialize(import_graph(import_onnx(write_onnx(dir, model)).graph), feeds, {"y"}, {});
  for (NodeId id = 0; id < graph.size(); ++id)
    for (const OutputInfo& output : graph.node(id).outputs)
      EXPECT_LT(output.shape.elements(), 3 * 2 * 4 * 5) << graph.node(id).name;
}

TEST(OnnxOpsTest, RecurrentNetworksStopAtTheLengthsOfTheirRows) {
  // One unit, weights 1, without activation: sums. The second row has one step of two.
  const std::string inputs = onnx_input("x", kOnnxFloat, {2, 2, 1}) + onnx_input("w", kOnnxFloat, {1, 1, 1}) +
                             onnx_input("r", kOnnxFloat, {1, 1, 1}) + onnx_input("b", kOnnxFloat, {1, 2}) +
                             onnx_input("lengths", kOnnxInt32, {2});
  const std::string affine =
      "attribute { name: \"activations\" strings: \"Affine\" type: STRINGS } attribute { name: "
      "\"activation_alpha\" "
      "floats: 1 type: FLOATS } attribute { name: \"activation_beta\" floats: 0 type: FLOATS } " +
      number("hidden_size", 1);
  EXPECT_THAT(
      float_values(run_onnx(one_node(14, "RNN", affine, inputs),
                            {{"x", floats({2, 2, 1}, {1, 2, 3, 4})},
                             {"w", floats({1, 1, 1}, {1})},
                             {"r", floats({1, 1, 1}, {1})},
                             {"b", floats({1, 2}, {0, 0})},
                             {"lengths", Tensor::from<std::int32_t>({2}, std::vector<std::int32_t>{2, 1})}})),
      ElementsAre(1, 2, 4, 0));
}

}  // namespace
}  // namespace braid::testing
