// Max pooling before what is done to each element, and layers of convolutions as one node: variables become
// what they become without.
#include <gtest/gtest.h>

#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/import/import.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/towers.h"

namespace braid::testing {
namespace {

using Ints = std::vector<std::int64_t>;

struct Block {
  std::string activation = "Relu";
  std::int64_t window = 2;  // 0: no pooling
  bool residual = false, fetches_activation = false;
};

class ImageModel {
 public:
  explicit ImageModel(const std::vector<Block>& blocks) {
    Output h = b_.placeholder("x", DType::Float32, Shape{4, 8, 8, 3});
    std::int64_t channels = 3, size = 8;
    std::vector<std::string> fetches;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const Block& block = blocks[i];
      const std::string name = "block" + std::to_string(i);
      const std::int64_t out = block.residual ? channels : 4 + static_cast<std::int64_t>(i);
      const InitSpec init{InitKind::Uniform, -0.4F, 0.4F};
      const Output kernel =
          b_.read(b_.variable(name + "/kernel", Shape{3, 3, channels, out}, {.init = init}));
      const Output bias = b_.read(b_.variable(name + "/bias", Shape{out}, {.init = init}));
      Output a = b_.op("Conv2D", {h, kernel}, {{"strides", Ints{1, 1, 1, 1}}, {"padding", "SAME"}});
      a = b_.bias_add(a, bias);
      if (block.residual) a = b_.add(a, h);
      if (!block.activation.empty()) a = b_.op(block.activation, {a});
      if (block.fetches_activation) fetches.push_back(a.name());
      h = a;
      if (block.window > 0) {
        h = b_.op("MaxPool", {a},
                  {{"ksize", Ints{1, block.window, block.window, 1}},
                   {"strides", Ints{1, 2, 2, 1}},
                   {"padding", "SAME"}});
        size = (size + 1) / 2;
      }
      channels = out;
    }
    const std::int64_t flat = size * size * channels;
    const Output y = b_.dense("top", b_.reshape(h, {-1, flat}), flat, 2, false);
    const Output loss = b_.reduce_mean(b_.mul(y, y));
    made_.graph = import_graph(b_.graph());
    made_.request.feeds = {{"x", DType::Float32, Shape{4, 8, 8, 3}}};
    made_.request.fetches = {loss.name()};
    for (const std::string& fetch : fetches) made_.request.fetches.push_back(fetch);
    add_training(made_, OptimizerKind::Sgd);
  }
  const Towers& model() const { return made_; }

 private:
  GraphBuilder b_;
  Towers made_;
};

/// Elements of the outputs of the ops of a name, together.
std::int64_t elements_of(const Program& program, const std::string& op) {
  std::int64_t sum = 0;
  for (const ProgramOp& made : program.ops)
    if (made.op == op) sum += program.graph.node(made.node).outputs[0].shape.elements();
  return sum;
}

TEST(PoolOrderTest, ActivationsAndTheirGradientsAreOfPooledImages) {
  const ImageModel made({{.activation = "Relu"}, {.activation = "Tanh", .window = 3}});
  const auto program = compile_for(made.model());
  EXPECT_EQ(elements_of(*program, "Relu"), 4 * 4 * 4 * 4);
  EXPECT_EQ(elements_of(*program, "ReluGrad"), 4 * 4 * 4 * 4);
  EXPECT_EQ(elements_of(*program, "Tanh"), 4 * 2 * 2 * 5);
  EXPECT_EQ(elements_of(*program, "TanhGrad"), 4 * 2 * 2 * 5);
  EXPECT_EQ(elements_of(*program, "BiasAdd"), 4 * 4 * 4 * 4 + 4 * 2 * 2 * 5);
  EXPECT_EQ(count_ops(*program, "braid.MaxPoolPlaces"), 2);
  EXPECT_EQ(count_ops(*program, "braid.MaxPoolPlacesGrad"), 2);
  expect_variables_of_a_step(made.model(), *program);
}

TEST(PoolOrderTest, FunctionsOfWhatComesBeforeThemMoveToo) {
  const ImageModel made({{.activation = "Softplus"}, {.activation = "Elu"}});
  const auto program = compile_for(made.model());
  EXPECT_EQ(elements_of(*program, "SoftplusGrad"), 4 * 4 * 4 * 4);
  EXPECT_EQ(elements_of(*program, "EluGrad"), 4 * 2 * 2 * 5);
  expect_variables_of_a_step(made.model(), *program);
}

TEST(PoolOrderTest, AFunctionThatOthersReadStays) {
  const ImageModel made({{.activation = "Relu", .fetches_activation = true}});
  const auto program = compile_for(made.model());
  EXPECT_EQ(elements_of(*program, "ReluGrad"), 4 * 4 * 4 * 4) << "of the pooled ones still";
  EXPECT_EQ(count_ops(*program, "BiasAdd") + count_ops(*program, "Relu"), 0) << "part of the convolution";
  EXPECT_EQ(count_ops(*program, "braid.FusedConv2D"), 1);
  expect_variables_of_a_step(made.model(), *program);
}

TEST(PoolOrderTest, FunctionsThatFallStay) {
  const ImageModel made({{.activation = "Neg"}, {.activation = "Square"}});
  const auto program = compile_for(made.model());
  EXPECT_EQ(elements_of(*program, "braid.MaxPoolPlaces"), 4 * 4 * 4 * 4 + 4 * 2 * 2 * 5);
  EXPECT_EQ(count_ops(*program, "braid.FusedConv2D"), 2) << "convolution and bias";
  expect_variables_of_a_step(made.model(), *program);
}

TEST(PoolOrderTest, OnTheHostNothingMoves) {
  const ImageModel made({{.activation = "Relu"}});
  const auto program = compile_for(made.model(), Domain::Host);
  EXPECT_EQ(elements_of(*program, "Relu"), 4 * 8 * 8 * 4);
  EXPECT_EQ(count_ops(*program, "braid.FusedConv2D"), 0);
}

/// Windows with more places than a byte counts keep their ops, and so do pools without a gradient, except
/// among halves.
TEST(PoolPlacesTest, LargeWindowsAreCompared) {
  const ImageModel made({{.activation = "Tanh", .window = 16}});
  const auto program = compile_for(made.model());
  EXPECT_EQ(count_ops(*program, "MaxPool"), 1);
  EXPECT_EQ(count_ops(*program, "MaxPoolGrad"), 1);
  EXPECT_EQ(count_ops(*program, "braid.MaxPoolPlaces"), 0);
  expect_variables_of_a_step(made.model(), *program);
}

TEST(PoolPlacesTest, APoolThatIsNotTrainedStaysOne) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, Shape{2, 8, 8, 16});
  const AttrMap quarters{{"ksize", Ints{1, 2, 2, 1}}, {"strides", Ints{1, 2, 2, 1}}};
  Towers made;
  const Output y = b.op("Neg", {b.op("MaxPool", {x}, quarters)});
  made.graph = import_graph(b.graph());
  made.request.feeds = {{"x", DType::Float32, Shape{2, 8, 8, 16}}};
  made.request.fetches = {y.name()};
  EXPECT_EQ(count_ops(*compile_for(made), "MaxPool"), 1);
  CompileOptions halves;
  halves.domain = Domain::Device;
  halves.precision.half = DType::BFloat16;
  const auto program = compile(made.graph, made.request, halves);
  EXPECT_EQ(count_ops(*program, "braid.MaxPoolPlaces"), 1);
  for (const ProgramOp& op : program->ops)
    if (op.op == "braid.MaxPoolPlaces") {
      EXPECT_EQ(program->graph.node(op.node).outputs[1].shape, Shape{0}) << "none are kept";
    }
}

TEST(ImageLayersTest, ConvolutionBiasResidualAndReluAreOneNode) {
  const ImageModel made({{.activation = "Relu", .window = 0},
                         {.activation = "Relu", .window = 0, .residual = true},
                         {.activation = "", .window = 0, .residual = true},
                         {.activation = "Tanh", .window = 0}});
  const auto program = compile_for(made.model());
  EXPECT_EQ(count_ops(*program, "braid.FusedConv2D"), 4);
  EXPECT_EQ(count_ops(*program, "Conv2D") + count_ops(*program, "BiasAdd") + count_ops(*program, "Relu") +
                count_ops(*program, "AddV2"),
            0);
  EXPECT_EQ(count_ops(*program, "Tanh"), 1);
  expect_variables_of_a_step(made.model(), *program);
}

}  // namespace
}  // namespace braid::testing
