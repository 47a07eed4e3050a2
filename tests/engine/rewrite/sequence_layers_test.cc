// Convolutions of sequences on a device: their biases, what is added and ReLU are part of them although a
// view lies between, and a bias that is zero is gone. Variables become what they become without.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/import/import.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/towers.h"

namespace braid::testing {
namespace {

using Ints = std::vector<std::int64_t>;

/// Sequences [2, 8, 4] through convolutions of three places.
class SequenceModel {
 public:
  SequenceModel() : h_(b_.placeholder("x", DType::Float32, {2, 8, 4})) {}

  Output weights(const Shape& shape) {
    const InitSpec init{InitKind::Uniform, -0.4F, 0.4F};
    return b_.read(b_.variable("w" + std::to_string(variables_++), shape, {.init = init}));
  }
  SequenceModel& convolution(const Output& bias) {
    const AttrMap attrs{{"strides", Ints{1, 1, 1, 1}}, {"padding", "SAME"}};
    const Output image = b_.reshape(h_, {2, 1, 8, 4});
    h_ = b_.reshape(b_.op("Conv2D", {image, weights({1, 3, 4, 4})}, attrs), {2, 8, 4});
    h_ = b_.op("BiasAdd", {h_, bias});
    return *this;
  }
  SequenceModel& convolution() { return convolution(weights({4})); }
  SequenceModel& zero_bias() {
    const Output zero = b_.constant(Tensor::scalar(0.0F), "zero");
    const Output four = b_.constant(Tensor::from<std::int32_t>({1}, std::vector{4}), "four");
    return convolution(b_.op("BroadcastTo", {zero, four}));
  }
  SequenceModel& function(const char* name) {
    h_ = b_.op(name, {h_});
    return *this;
  }
  Output value() const { return h_; }
  SequenceModel& add(const Output& other) {
    h_ = b_.add(h_, other);
    return *this;
  }
  Towers finished() {
    const Output loss = b_.reduce_mean(b_.mul(h_, b_.op("Tanh", {h_})));
    Towers made;
    made.graph = import_graph(b_.graph());
    made.request.feeds = {{"x", DType::Float32, {2, 8, 4}}};
    made.request.fetches = {loss.name()};
    add_training(made, OptimizerKind::Sgd);
    return made;
  }

 private:
  GraphBuilder b_;
  Output h_;
  int variables_ = 0;
};

TEST(SequenceLayersTest, HaveTheirBiasAndFunction) {
  SequenceModel model;
  const Towers made = model.convolution().function("Relu").convolution().function("Neg").finished();
  const auto program = compile_for(made);
  EXPECT_EQ(count_ops(*program, "braid.FusedConv2D"), 2);
  EXPECT_EQ(count_ops(*program, "BiasAdd") + count_ops(*program, "Relu"), 0);
  expect_variables_of_a_step(made, *program);
}

TEST(SequenceLayersTest, HaveWhatIsAdded) {
  SequenceModel model;
  const Output before = model.convolution().function("Tanh").value();
  const Towers made = model.convolution().add(before).function("Relu").finished();
  const auto program = compile_for(made);
  EXPECT_EQ(count_ops(*program, "braid.FusedConv2D"), 2);
  EXPECT_EQ(count_ops(*program, "AddV2") + count_ops(*program, "Relu"), 0);
  expect_variables_of_a_step(made, *program);
}

TEST(SequenceLayersTest, ABiasOfZerosIsGone) {
  SequenceModel model;
  const Towers made = model.zero_bias().function("Neg").finished();
  const auto program = compile_for(made);
  EXPECT_EQ(count_ops(*program, "Conv2D"), 1);
  EXPECT_EQ(count_ops(*program, "braid.FusedConv2D") + count_ops(*program, "BiasAdd"), 0);
  expect_variables_of_a_step(made, *program);
}

}  // namespace
}  // namespace braid::testing
