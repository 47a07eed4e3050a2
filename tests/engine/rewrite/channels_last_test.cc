// Images whose channels come first become images whose channels come last: variables become what
// they become without, and few transpositions are left.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/import/import.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/towers.h"

namespace braid::testing {
namespace {

using Ints = std::vector<std::int64_t>;

/// Images [kImages, channels, h, w] through layers.
class FirstModel {
 public:
  explicit FirstModel(Shape image)
      : shape_(std::move(image)), h_(b_.placeholder("x", DType::Float32, shape_)) {}

  std::int64_t channels() const { return shape_[1]; }
  const Shape& shape() const { return shape_; }

  Output weights(const Shape& shape) {
    const InitSpec init{InitKind::Uniform, -0.4F, 0.4F};
    return b_.read(b_.variable("w" + std::to_string(variables_++), shape, {.init = init}));
  }
  Output ints(const Ints& values) {
    Tensor tensor(DType::Int32, Shape{static_cast<std::int64_t>(values.size())});
    for (std::size_t i = 0; i < values.size(); ++i)
      tensor.data<std::int32_t>()[i] = static_cast<int>(values[i]);
    return b_.constant(tensor);
  }
  Output number(std::int32_t value) { return b_.constant(Tensor::scalar(value)); }

  void convolution(std::int64_t out, std::int64_t kernel, std::int64_t stride,
                   bool explicit_paddings = false) {
    AttrMap attrs{{"strides", Ints{1, 1, stride, stride}}, {"padding", "SAME"}, {"data_format", "NCHW"}};
    std::int64_t h = (shape_[2] + stride - 1) / stride, w = (shape_[3] + stride - 1) / stride;
    if (explicit_paddings) {
      attrs.set("padding", std::string("EXPLICIT"));
      attrs.set("explicit_paddings", Ints{0, 0, 0, 0, 1, 2, 2, 0});
      h = (shape_[2] + 3 - kernel) / stride + 1;
      w = (shape_[3] + 2 - kernel) / stride + 1;
    }
    h_ = b_.op("Conv2D", {h_, weights({kernel, kernel, channels(), out})}, attrs);
    shape_ = Shape{shape_[0], out, h, w};
  }
  void depthwise(std::int64_t kernel) {
    h_ = b_.op("DepthwiseConv2dNative", {h_, weights({kernel, kernel, channels(), 1})},
               {{"strides", Ints{1, 1, 1, 1}}, {"padding", "SAME"}, {"data_format", "NCHW"}});
  }
  void bias(bool with_image_axis) {
    h_ = b_.add(h_, weights(with_image_axis ? Shape{1, channels(), 1, 1} : Shape{channels(), 1, 1}));
  }
  void function(const char* name) { h_ = b_.op(name, {h_}); }
  void pool(const char* name) {
    h_ = b_.op(name, {h_},
               {{"ksize", Ints{1, 1, 2, 3}},
                {"strides", Ints{1, 1, 2, 1}},
                {"padding", "SAME"},
                {"data_format", "NCHW"}});
    shape_.set_dim(2, (shape_[2] + 1) / 2);
  }
  void norm() {
    h_ = b_.op(
        "FusedBatchNormV3",
        {h_, weights({channels()}), weights({channels()}), b_.constant(Tensor::zeros(DType::Float32, {0})),
         b_.constant(Tensor::zeros(DType::Float32, {0}))},
        {{"is_training", true}, {"data_format", "NCHW"}, {"epsilon", 0.1F}});
  }
  /// Numbers of each channel from the means of its image.
  void squeeze_and_excite(bool keep_dims) {
    Output mean = b_.op("Mean", {h_, ints({2, 3})}, {{"keep_dims", keep_dims}});
    if (!keep_dims)
      mean = b_.reshape(b_.matmul(mean, weights({channels(), channels()})), {shape_[0], channels(), 1, 1});
    h_ = b_.mul(h_, b_.op("Sigmoid", {mean}));
  }
  void residual() {
    const Output before = h_;
    const Shape shape = shape_;
    convolution(channels(), 3, 1);
    h_ = b_.add(h_, b_.op("Tanh", {before}));
    shape_ = shape;
  }
  void gate() {
    const std::int64_t half = channels() / 2;
    const Output parts =
        b_.op("SplitV", {h_, ints({half, channels() - half}), number(1)}, {{"num_split", std::int64_t{2}}});
    const Output other = b_.op("Sigmoid", {Output{parts.node, 1}});
    h_ = channels() == 2 * half ? b_.mul(parts, other) : b_.concat({other, parts}, 1);
    if (channels() == 2 * half) shape_.set_dim(1, half);
  }
  void join() {
    const Output other = b_.op("Sigmoid", {h_});
    h_ = b_.op("ConcatV2", {h_, other, number(-3)});
    shape_.set_dim(1, 2 * channels());
  }
  void pad() {
    Tensor paddings(DType::Int32, Shape{4, 2});
    const int values[] = {0, 0, 0, 0, 1, 0, 0, 2};
    for (std::size_t i = 0; i < 8; ++i) paddings.data<std::int32_t>()[i] = values[i];
    h_ = b_.op("Pad", {h_, b_.constant(paddings)});
    shape_.set_dim(2, shape_[2] + 1);
    shape_.set_dim(3, shape_[3] + 2);
  }
  /// All but the last column, and of that the second half of the channels.
  void cut() {
    const std::int64_t w = shape_[3];
    if (w < 2) return;
    const auto at = [&](std::int64_t c, std::int64_t end) { return ints({0, c, 0, end}); };
    h_ = b_.op("StridedSlice", {h_, at(0, 0), at(0, -1), ints({1, 1, 1, 1})},
               {{"begin_mask", std::int64_t{15}}, {"end_mask", std::int64_t{7}}});
    shape_.set_dim(3, w - 1);
    const std::int64_t first = channels() / 2;
    h_ = b_.op("StridedSlice", {h_, at(first, 0), at(0, 0), ints({1, 1, 1, 1})},
               {{"end_mask", std::int64_t{15}}});
    shape_.set_dim(1, channels() - first);
  }
  void enlarge() {
    Ints places;
    for (std::int64_t i = 0; i < 2 * shape_[2]; ++i) places.push_back(i / 2);
    h_ = b_.op("GatherV2", {h_, ints(places), number(2)});
    shape_.set_dim(2, 2 * shape_[2]);
  }
  /// A norm over the channels of each place, as it is written for channels that come last.
  void turned_norm() {
    const Output last = b_.op("Transpose", {h_, ints({0, 2, 3, 1})});
    const Output mean = b_.op("Mean", {last, ints({-1})}, {{"keep_dims", true}});
    h_ = b_.op("Transpose", {b_.op("Sub", {last, mean}), ints({0, 3, 1, 2})});
  }
  /// Group norm, as files write it: each group's elements are a row.
  void group_norm(std::int64_t groups) {
    const std::int64_t rest = shape_.elements() / (shape_[0] * groups);
    const Output rows = b_.reshape(h_, {shape_[0], groups, rest});
    const Output mean = b_.op("Mean", {rows, ints({2})}, {{"keep_dims", true}});
    const Output apart = b_.op("Sub", {rows, mean});
    const Output variance = b_.op("Mean", {b_.op("Square", {apart}), ints({-1})}, {{"keep_dims", true}});
    const Output small = b_.op("AddV2", {variance, b_.constant(Tensor::scalar(0.1F))});
    Output normal = b_.mul(b_.mul(apart, b_.op("Rsqrt", {small})), weights({1, groups, 1}));
    normal = b_.add(b_.reshape(normal, Ints(shape_.dims().begin(), shape_.dims().end())),
                    weights({channels(), 1, 1}));
    h_ = b_.mul(normal, weights({1, channels(), 1, 1}));
  }
  /// A series [n, c, t] under a convolution of one axis.
  void series() {
    const Ints line{shape_[0], channels(), shape_[2] * shape_[3]};
    const Output rows = b_.mul(b_.reshape(h_, line), weights({channels(), 1}));
    h_ = b_.reshape(rows, {line[0], line[1], 1, line[2]});
    shape_ = Shape{line[0], line[1], 1, line[2]};
    convolution(channels(), 3, 1);
    const Output flat = b_.op("Squeeze", {h_}, {{"squeeze_dims", Ints{2}}});
    Output sum = b_.add(b_.op("Tanh", {flat}), weights({channels(), 1}));
    if (channels() % 2 == 0) {
      const Output parts = b_.op("SplitV", {sum, ints({channels() / 2, channels() / 2}), number(-2)},
                                 {{"num_split", std::int64_t{2}}});
      sum = b_.mul(b_.op("Tanh", {b_.op("Identity", {parts})}), b_.op("Sigmoid", {Output{parts.node, 1}}));
      shape_.set_dim(1, channels() / 2);
    }
    h_ = b_.op("ExpandDims", {sum, number(2)});
  }

  /// Places [n, t, c] that are turned for convolutions of one axis, and back.
  void turned_sequence(std::int64_t kernel) {
    const std::int64_t n = shape_[0], t = shape_[2] * shape_[3], c = channels();
    const Output places = b_.op("Tanh", {b_.reshape(h_, {n, t, c})});
    h_ = b_.op("ExpandDims", {b_.op("Transpose", {places, ints({0, 2, 1})}), number(2)});
    shape_ = Shape{n, c, 1, t};
    convolution(c, kernel, 1);
    bias(false);
    gate();
    convolution(c, kernel, 1);
    const Output line = b_.op("Squeeze", {h_}, {{"squeeze_dims", Ints{2}}});
    const Output back = b_.op("Neg", {b_.op("Transpose", {line, ints({0, 2, 1})})});
    h_ = b_.reshape(back, {n, channels(), 1, t});
  }

  Towers finished(bool flat) {
    Output rows =
        flat ? b_.reshape(h_, {shape_[0], shape_.elements() / shape_[0]}) : b_.op("Mean", {h_, ints({2, 3})});
    const std::int64_t width = flat ? shape_.elements() / shape_[0] : channels();
    const Output y = b_.op("Tanh", {b_.matmul(rows, weights({width, 2}))});
    const Output loss = b_.reduce_mean(b_.mul(y, y));
    Towers made;
    made.graph = import_graph(b_.graph());
    made.request.feeds = {{"x", DType::Float32, made.graph.node(made.graph.find("x")).outputs[0].shape}};
    made.request.fetches = {loss.name()};
    add_training(made, OptimizerKind::Sgd);
    return made;
  }

 private:
  GraphBuilder b_;
  Shape shape_;
  Output h_;
  int variables_ = 0;
};

/// Of images, whose first axis stays; that of a filter does not.
std::int64_t transposed_elements(const Program& program) {
  std::int64_t sum = 0;
  for (const ProgramOp& op : program.ops) {
    if (op.op != "Transpose") continue;
    const Node& node = program.graph.node(op.node);
    const Tensor* order = program.graph.known_value(node.inputs[1]);
    if (!order || tensor_to_int64s(*order)[0] == 0) sum += node.outputs[0].shape.elements();
  }
  return sum;
}

std::int64_t nodes_with_channels_first(const Program& program) {
  std::int64_t count = 0;
  for (const ProgramOp& op : program.ops)
    count += program.graph.node(op.node).attrs.get<std::string>("data_format", "") == "NCHW";
  return count;
}

/// For a device that makes regions.
std::shared_ptr<const Program> compile_with_regions(const Towers& model) {
  CompileOptions options;
  options.domain = Domain::Device;
  options.fusion = true;
  return compile(model.graph, model.request, options);
}

constexpr std::int64_t kInput = 2 * 3 * 6 * 5;

TEST(ChannelsLastTest, LayersOfConvolutionsTransposeTheirInputAlone) {
  FirstModel model({2, 3, 6, 5});
  for (int layer = 0; layer < 3; ++layer) {
    model.convolution(4 + layer, 3, 1);
    model.bias(layer == 1);
    model.function("Relu");
  }
  const Towers made = model.finished(false);
  const auto program = compile_for(made);
  EXPECT_EQ(nodes_with_channels_first(*program), 0);
  EXPECT_LE(transposed_elements(*program), kInput);
  EXPECT_EQ(count_ops(*program, "braid.FusedConv2D"), 3) << "with their biases and functions";
  expect_variables_of_a_step(made, *program);
}

TEST(ChannelsLastTest, WhatLiesBetweenMovesToo) {
  FirstModel model({2, 3, 6, 5});
  model.convolution(4, 3, 1);
  model.norm();
  model.squeeze_and_excite(false);
  model.turned_norm();
  model.depthwise(3);
  model.gate();
  model.residual();
  model.join();
  model.pad();
  model.cut();
  model.pool("MaxPool");
  model.enlarge();
  model.convolution(3, 1, 1);
  model.squeeze_and_excite(true);
  model.pool("AvgPool");
  const Towers made = model.finished(false);
  const auto program = compile_for(made);
  EXPECT_EQ(nodes_with_channels_first(*program), 0);
  EXPECT_LE(transposed_elements(*program), kInput);
  expect_variables_of_a_step(made, *program);
}

TEST(ChannelsLastTest, SeriesWithOneAxisDoToo) {
  FirstModel model({2, 3, 1, 7});
  model.convolution(8, 3, 1);
  model.series();
  model.series();
  const Towers made = model.finished(false);
  const auto program = compile_for(made);
  EXPECT_EQ(nodes_with_channels_first(*program), 0);
  EXPECT_LE(transposed_elements(*program), 2 * 3 * 7);
  expect_variables_of_a_step(made, *program);
}

TEST(ChannelsLastTest, SequencesThatTheUserTurnsDoToo) {
  for (const std::int64_t kernel : {1, 3}) {
    FirstModel model({2, 4, 1, 7});
    model.turned_sequence(kernel);
    model.turned_sequence(kernel);
    const Towers made = model.finished(false);
    const auto program = compile_for(made);
    EXPECT_EQ(nodes_with_channels_first(*program), 0);
    EXPECT_EQ(transposed_elements(*program), 0) << kernel;
    expect_variables_of_a_step(made, *program);
  }
}

TEST(ChannelsLastTest, GroupNormReadsThemWhereRegionsAreMade) {
  FirstModel model({2, 3, 6, 5});
  for (const std::int64_t groups : {4, 1, 2}) {
    model.convolution(8, 3, 1);
    model.group_norm(groups);
    model.function("Sigmoid");
  }
  const Towers made = model.finished(false);
  EXPECT_GT(transposed_elements(*compile_for(made)), 2 * 8 * 30);
  const auto program = compile_with_regions(made);
  EXPECT_EQ(nodes_with_channels_first(*program), 0);
  EXPECT_LE(transposed_elements(*program), kInput);
  expect_variables_of_a_step(made, *program);
}

TEST(ChannelsLastTest, GraphsWithoutConvolutionsStayAsTheyAre) {
  FirstModel model({2, 3, 6, 5});
  model.pool("MaxPool");
  model.norm();
  const Towers made = model.finished(true);
  const auto program = compile_for(made);
  EXPECT_GT(nodes_with_channels_first(*program), 0);
  EXPECT_EQ(transposed_elements(*program), 0);
}

TEST(ChannelsLastTest, RandomModelsMeanTheSame) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 draw(seed);
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int64_t>(draw() % static_cast<unsigned>(n));
    };
    FirstModel model({1 + below(3), 1 + below(4), 1 + below(6), 1 + below(6)});
    for (std::int64_t layer = 0, layers = 2 + below(7); layer < layers; ++layer) {
      switch (below(18)) {
        case 17:
          model.turned_sequence(1 + 2 * below(2));
          break;
        case 0:
        case 1:
          model.convolution(1 + below(5), 1 + 2 * below(2), 1 + below(2));
          break;
        case 2:
          model.convolution(1 + below(4), 2, 1, true);
          break;
        case 3:
          model.depthwise(3);
          break;
        case 4:
          model.bias(below(2) == 0);
          break;
        case 5:
          model.function(std::array{"Relu", "Tanh", "Softplus", "Neg"}[static_cast<std::size_t>(below(4))]);
          break;
        case 6:
          model.pool(below(2) == 0 ? "MaxPool" : "AvgPool");
          break;
        case 7:
          model.norm();
          break;
        case 8:
          model.squeeze_and_excite(below(2) == 0);
          break;
        case 9:
          model.residual();
          break;
        case 10:
          model.gate();
          break;
        case 11:
          model.join();
          break;
        case 12:
          model.pad();
          break;
        case 13:
          model.enlarge();
          break;
        case 15:
          model.cut();
          break;
        case 14:
          model.group_norm(model.channels() % 3 == 0 ? 3 : model.channels() % 2 == 0 ? 2 : 1);
          break;
        default:
          below(2) == 0 ? model.turned_norm() : model.series();
          break;
      }
      if (model.channels() > 12) model.convolution(2, 1, 1);
    }
    const Towers made = model.finished(below(2) == 0);
    const auto program = below(2) == 0 ? compile_for(made) : compile_with_regions(made);
    expect_variables_of_a_step(made, *program, ErrorOf::LargestOfItsVariable);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace braid::testing
