// Mixed precision: what products read, what is stored as halves, and that losses and gradients stay close to
// those of float32, for programs of the host, with and without regions, and of a device (run by the
// interpreter).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "engine/compile/compile.h"
#include "engine/import/import.h"
#include "engine/ops/common/halves.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "tests/engine/rewrite/mixed_models.h"
#include "tests/engine/testing/differentiated.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

std::shared_ptr<const Program> compiled(const Differentiated& model, const CompileOptions& options) {
  CompileRequest request;
  for (const auto& [name, value] : model.feeds) request.feeds.push_back({name, value.dtype(), value.shape()});
  request.fetches = model.fetches;
  return compile(model.graph, request, options);
}

/// Layers with bias and ReLU, and a head whose squares are the loss.
Differentiated layers(std::int64_t rows, std::vector<std::int64_t> widths, const char* activation = "Relu") {
  GraphBuilder b;
  Output x = b.placeholder("x", DType::Float32, Shape{rows, widths[0]});
  for (std::size_t i = 1; i < widths.size(); ++i) {
    const std::string name = "layer" + std::to_string(i);
    const Output w = b.read(b.variable(name + "/w", Shape{widths[i - 1], widths[i]}, {}));
    const Output bias = b.read(b.variable(name + "/b", Shape{widths[i]}, {}));
    x = b.op("BiasAdd", {b.op("MatMul", {x, w}), bias});
    if (i + 1 < widths.size()) x = b.op(activation, {x});
  }
  return differentiated(b, b.reduce_mean(b.op("Square", {x})), {{"x", random_floats({rows, widths[0]}, 1)}});
}

/// What each op of the program reads first, by its kind.
std::multiset<std::string> inputs_of(const Program& program, std::string_view op) {
  std::multiset<std::string> types;
  for (const ProgramOp& one : program.ops) {
    if (one.op != op) continue;
    const Node& node = program.graph.node(one.node);
    types.insert(std::string(dtype_name(program.graph.info(node.inputs[0]).dtype)));
  }
  return types;
}

int casts(const Program& program, DType to) {
  int count = 0;
  for (const ProgramOp& op : program.ops)
    if (op.op == "Cast" && program.graph.node(op.node).outputs[0].dtype == to) ++count;
  return count;
}

std::string note_of(const Program& program) {
  for (const Note& note : program.notes)
    if (note.pass == "mixed_precision") return note.text;
  return "none";
}

TEST(MixedPrecisionTest, NothingChangesWithoutIt) {
  const auto program = compiled(layers(64, {32, 64, 8}), precision_options(DType::Float32));
  EXPECT_EQ(note_of(*program), "none");
  EXPECT_EQ(casts(*program, DType::BFloat16), 0);
}

TEST(MixedPrecisionTest, EveryProductReadsHalvesAndAWeightIsCastOnce) {
  for (const DType half : {DType::BFloat16, DType::Float16}) {
    const auto program = compiled(layers(64, {32, 64, 48, 16}), precision_options(half));
    const std::string name(dtype_name(half));
    // Three forward, three gradients of weights, two of activations.
    EXPECT_EQ(inputs_of(*program, "MatMul"),
              (std::multiset<std::string>{name, name, name, name, name, name, name, name}));
    EXPECT_EQ(count_ops(*program, "braid.CastMany"), 1);
    for (const ProgramOp& op : program->ops)
      if (op.op == "braid.CastMany") {
        EXPECT_EQ(op.inputs.size(), 3U) << "the weights, and no bias";
      }
    // x, two activations, and the gradients behind three layers.
    EXPECT_EQ(casts(*program, half), 6) << note_of(*program);
  }
}

TEST(MixedPrecisionTest, VariablesFeedsAndFetchesKeepTheirTypes) {
  const Differentiated model = layers(64, {32, 64, 16});
  for (const Domain domain : {Domain::Host, Domain::Device}) {
    const auto program = compiled(model, precision_options(DType::BFloat16, domain));
    for (const ProgramVariable& variable : program->variables) EXPECT_EQ(variable.dtype, DType::Float32);
    for (const ProgramFetch& fetch : program->fetches) EXPECT_EQ(fetch.dtype, DType::Float32);
    for (const ProgramFeed& feed : program->feeds) EXPECT_EQ(feed.dtype, DType::Float32);
  }
}

TEST(MixedPrecisionTest, LayersOfADeviceStayFusedAndPassHalvesOn) {
  const auto program =
      compiled(layers(512, {64, 256, 256, 16}), precision_options(DType::BFloat16, Domain::Device));
  EXPECT_EQ(count_ops(*program, "braid.FusedMatMul"), 3);
  EXPECT_EQ(count_ops(*program, "braid.ReluBiasGrad"), 2) << "columns are for float32";
  EXPECT_EQ(inputs_of(*program, "braid.ReluBiasGrad"), (std::multiset<std::string>{"bfloat16", "bfloat16"}));
  // x, and the gradient behind the last layer; everything between is a half where it is made.
  EXPECT_EQ(casts(*program, DType::BFloat16), 2) << note_of(*program);
  EXPECT_EQ(casts(*program, DType::Float32), 0) << note_of(*program);
  for (const ProgramOp& op : program->ops) {
    const Node& node = program->graph.node(op.node);
    if (op.op == "braid.FusedMatMul" && node.outputs[0].shape[1] == 16) {
      EXPECT_EQ(node.outputs[0].dtype, DType::Float32) << "the last layer's is what the loss is made of";
    }
    if (op.op == "MatMul" && node.outputs[0].shape[0] != 512) {
      EXPECT_EQ(node.outputs[0].dtype, DType::Float32) << "a gradient of weights";
    }
  }
}

/// Rows of a table by ids, of which a product reads all and, where `few`, another one the last four.
Differentiated looked_up(std::int64_t table, bool few) {
  GraphBuilder b;
  constexpr std::int64_t kRows = 512, kWidth = 64;
  std::vector<std::pair<std::string, Tensor>> feeds;
  const auto indices = [&](const std::string& name, std::int64_t count, std::int64_t below) {
    Tensor values(DType::Int64, Shape{count});
    for (std::int64_t i = 0; i < count; ++i)
      values.data<std::int64_t>()[static_cast<std::size_t>(i)] = i * 7 % below;
    feeds.emplace_back(name, values);
    return b.placeholder(name, DType::Int64, Shape{count});
  };
  const Output handle = b.variable("table", Shape{table, kWidth}, {});
  const Output rows = b.gather(handle, indices("ids", kRows, table));
  const Output w = b.read(b.variable("w", Shape{kWidth, kWidth}, {}));
  Output loss = b.reduce_mean(b.op("Square", {b.matmul(rows, w)}));
  if (few) {
    const Output last = b.op(
        "GatherV2", {rows, indices("last", 4, kRows), b.constant(Tensor::scalar<std::int32_t>(0), "axis")});
    loss = b.add(loss, b.reduce_mean(b.op("Square", {b.matmul(last, w)})));
  }
  Differentiated made;
  made.graph = import_graph(b.graph());
  made.feeds = std::move(feeds);
  made.fetches = {loss.name()};
  return made;
}

TEST(MixedPrecisionTest, LookupsWriteHalvesWhereProductsReadThem) {
  for (const bool few : {false, true}) {
    const auto program = compiled(looked_up(100, few), precision_options(DType::BFloat16));
    int lookups = 0;
    for (const ProgramOp& op : program->ops) {
      if (op.op != "ResourceGather") continue;
      ++lookups;
      EXPECT_EQ(program->graph.node(op.node).outputs[0].dtype, DType::BFloat16);
    }
    EXPECT_EQ(lookups, 1);
    EXPECT_EQ(casts(*program, DType::BFloat16), 1) << "the weight alone: " << note_of(*program);
    EXPECT_EQ(inputs_of(*program, "GatherV2"),
              few ? std::multiset<std::string>{"bfloat16"} : std::multiset<std::string>{});
  }
}

TEST(MixedPrecisionTest, AGatherOfFewRowsHasNotAllOfItsTableCast) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, Shape{512, 64});
  const Output at = b.placeholder("at", DType::Int64, Shape{4});
  const Output w = b.read(b.variable("w", Shape{64, 64}, {}));
  const Output taken = b.op("GatherV2", {x, at, b.constant(Tensor::scalar<std::int32_t>(0), "axis")});
  const Output y = b.matmul(taken, w);
  Differentiated model;
  model.graph = import_graph(b.graph());
  model.feeds = {{"x", random_floats({512, 64}, 1)},
                 {"at", Tensor::from<std::int64_t>(Shape{4}, std::vector<std::int64_t>{1, 2, 3, 4})}};
  model.fetches = {y.name()};
  const auto program = compiled(model, precision_options(DType::BFloat16));
  EXPECT_EQ(inputs_of(*program, "GatherV2"), std::multiset<std::string>{"float32"});
}

TEST(MixedPrecisionTest, WhatTheJobKeepsStaysFloat32) {
  CompileOptions options = precision_options(DType::BFloat16);
  options.precision.keep_nodes = "MatMul_2";
  const Differentiated model = layers(64, {32, 64, 48, 16});
  const auto by_name = compiled(model, options);
  EXPECT_TRUE(inputs_of(*by_name, "MatMul").contains("float32")) << note_of(*by_name);
  EXPECT_NE(note_of(*by_name).find("as the job asks"), std::string::npos) << note_of(*by_name);
  options.precision.keep_nodes = "";
  options.precision.keep_ops = {"MatMul"};
  const auto by_op = compiled(model, options);
  EXPECT_FALSE(inputs_of(*by_op, "MatMul").contains("bfloat16"));
  EXPECT_EQ(casts(*by_op, DType::BFloat16), 0);
  options.precision.keep_nodes = "(";
  EXPECT_NE(message_of([&] { compiled(model, options); }).find("'(' is no regular expression"),
            std::string::npos);
}

TEST(MixedPrecisionTest, RegionsReadAndStoreHalvesAndComputeInFloat32) {
  // x0 * (W (V x) + b) + x, as a cross network has it.
  constexpr std::int64_t kRows = 256, kWidth = 96, kRank = 32;
  GraphBuilder b;
  const Output x0 = b.placeholder("x", DType::Float32, Shape{kRows, kWidth});
  Output x = x0;
  for (int l = 0; l < 3; ++l) {
    const std::string name = "cross" + std::to_string(l);
    const Output v = b.read(b.variable(name + "/v", Shape{kWidth, kRank}, {}));
    const Output w = b.read(b.variable(name + "/w", Shape{kRank, kWidth}, {}));
    const Output bias = b.read(b.variable(name + "/b", Shape{kWidth}, {}));
    const Output product = b.op("MatMul", {b.op("MatMul", {x, v}), w});
    x = b.add(b.mul(x0, b.op("BiasAdd", {product, bias})), x);
  }
  const Output top = b.read(b.variable("top", Shape{kWidth, 16}, {}));
  const Differentiated model = differentiated(b, b.reduce_mean(b.op("Square", {b.op("MatMul", {x, top})})),
                                              {{"x", random_floats({kRows, kWidth}, 1)}});
  const auto program = compiled(model, precision_options(DType::BFloat16, Domain::Host, true));
  EXPECT_LE(casts(*program, DType::BFloat16) + casts(*program, DType::Float32), 2) << note_of(*program);
  int of_halves = 0;
  for (const ProgramOp& op : program->ops) {
    if (op.op != "braid.Fused") continue;
    const Node& node = program->graph.node(op.node);
    for (const OutputInfo& output : node.outputs) of_halves += is_half(output.dtype) ? 1 : 0;
  }
  EXPECT_GE(of_halves, 6) << "forward and backward of each layer";
}

constexpr std::int64_t kImages = 8;

/// Three convolutions, pooling behind the first two, and Tanh where asked for.
Differentiated images_with(const char* pooling, bool tanh, std::int64_t image_channels = 16) {
  constexpr std::int64_t kSide = 12, kChannels = 16;
  using Ints = std::vector<std::int64_t>;
  GraphBuilder b;
  Output x = b.placeholder("x", DType::Float32, Shape{kImages, kSide, kSide, image_channels});
  const AttrMap same{{"strides", Ints{1, 1, 1, 1}}, {"padding", "SAME"}};
  const AttrMap quarters{{"ksize", Ints{1, 2, 2, 1}}, {"strides", Ints{1, 2, 2, 1}}, {"padding", "SAME"}};
  const auto convolved = [&](const char* layer, std::int64_t channels) {
    const Output filter = b.read(b.variable(layer, Shape{3, 3, channels, kChannels}, {}));
    const Output made = b.op("Conv2D", {x, filter}, same);
    return tanh ? b.op("Tanh", {made}) : made;
  };
  x = b.op(pooling, {convolved("first", image_channels)}, quarters);
  x = b.op(pooling, {convolved("second", kChannels)}, quarters);
  x = convolved("last", kChannels);
  const Output axes = b.constant(Tensor::from<std::int32_t>({2}, std::vector<std::int32_t>{1, 2}));
  const Output means = b.op("Mean", {x, axes});
  return differentiated(b, b.reduce_mean(b.op("Square", {means})),
                        {{"x", random_floats({kImages, kSide, kSide, image_channels}, 1)}});
}

TEST(MixedPrecisionTest, MaxPoolsOfADeviceTakeHalvesAndKeepPlaces) {
  const auto program =
      compiled(images_with("MaxPool", false), precision_options(DType::BFloat16, Domain::Device, true));
  using Types = std::multiset<std::string>;
  EXPECT_EQ(inputs_of(*program, "braid.MaxPoolPlaces"), (Types{"bfloat16", "bfloat16"})) << note_of(*program);
  EXPECT_EQ(inputs_of(*program, "braid.MaxPoolPlacesGrad"), (Types{"uint8", "uint8"}));
  for (const ProgramOp& op : program->ops) {
    if (op.op != "braid.MaxPoolPlacesGrad") continue;
    const Node& node = program->graph.node(op.node);
    EXPECT_EQ(program->graph.info(node.inputs[1]).dtype, DType::BFloat16) << op.name;
    EXPECT_EQ(node.outputs[0].dtype, DType::BFloat16) << op.name;
  }
  const auto host =
      compiled(images_with("MaxPool", true), precision_options(DType::BFloat16, Domain::Host, true));
  EXPECT_EQ(inputs_of(*host, "MaxPool"), (Types{"float32", "float32"}));
}

TEST(MixedPrecisionTest, FewChannelsOfADeviceAreHalves) {
  const auto program =
      compiled(images_with("AvgPool", false, 3), precision_options(DType::BFloat16, Domain::Device, true));
  using Types = std::multiset<std::string>;
  const Types three{"bfloat16", "bfloat16", "bfloat16"};
  EXPECT_EQ(inputs_of(*program, "Conv2D"), three) << note_of(*program);
  EXPECT_EQ(inputs_of(*program, "Conv2DBackpropFilter"), three) << note_of(*program);
}

TEST(MixedPrecisionTest, ImagesAreHalvesFromConvolutionToConvolution) {
  const auto program =
      compiled(images_with("AvgPool", true), precision_options(DType::BFloat16, Domain::Host, true));
  using Types = std::multiset<std::string>;
  const Types three{"bfloat16", "bfloat16", "bfloat16"};
  EXPECT_EQ(inputs_of(*program, "Conv2D"), three) << note_of(*program);
  EXPECT_EQ(inputs_of(*program, "Conv2DBackpropFilter"), three);
  EXPECT_EQ(inputs_of(*program, "AvgPool"), (Types{"bfloat16", "bfloat16"})) << note_of(*program);
  int widened = 0;  // images, not the gradients of filters
  for (const ProgramOp& op : program->ops) {
    const Node& node = program->graph.node(op.node);
    widened +=
        op.op == "Cast" && node.outputs[0].dtype == DType::Float32 && node.outputs[0].shape[0] == kImages;
  }
  EXPECT_EQ(widened, 0) << note_of(*program);
}

// ------------------------------------------------------------------------------------------- the zoo

class MixedZooTest : public ::testing::TestWithParam<const char*> {};

TEST_P(MixedZooTest, LossAndGradientsStayCloseToThoseOfFloat32) {
  const MixedModel model = zoo_model(GetParam());
  const std::vector<Tensor> expected = run_model(model, precision_options(DType::Float32));
  for (const DType half : {DType::BFloat16, DType::Float16})
    for (const bool fusion : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", dtype_name(half), fusion ? ", regions" : ""));
      const std::vector<Tensor> got = run_model(model, precision_options(half, Domain::Host, fusion));
      ASSERT_EQ(got.size(), expected.size());
      for (const Tensor& tensor : got) ASSERT_EQ(tensor.dtype(), DType::Float32);
      const Apart error = apart(model, got, expected);
      EXPECT_LT(error.loss, 0.01);
      EXPECT_LT(error.gradient, half == DType::BFloat16 ? 0.15 : 0.08) << error.worst;
      EXPECT_GT(error.loss + error.gradient, 0) << "no product ran on halves";
    }
}

INSTANTIATE_TEST_SUITE_P(Models, MixedZooTest,
                         ::testing::Values("mlp", "wide_deep", "deepfm", "dcn_v2", "dlrm", "mmoe", "din",
                                           "cnn", "hstu", "transformer"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace braid::testing
