// Filters of convolutions lie as a device's library reads them, and volumes have their channels last:
// variables become what they become without, and no more transpositions are left than it takes.
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

class FilterModel {
 public:
  /// `format` of images [2, 4, 6, 5], or volumes with one axis more.
  FilterModel(std::string format, Shape image)
      : format_(std::move(format)), h_(b_.placeholder("x", DType::Float32, std::move(image))) {}

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
  AttrMap attrs(std::int64_t stride = 1) const {
    Ints strides(format_.size(), stride);
    strides[0] = strides[format_.find('C')] = 1;
    return {{"strides", strides}, {"padding", "SAME"}, {"data_format", format_}};
  }
  const char* op() const { return format_.size() == 5 ? "Conv3D" : "Conv2D"; }

  /// A filter as PyTorch keeps it, [out, in / groups, kernel...].
  void with_outputs_in_front(const Shape& filter) {
    const bool volumes = filter.rank() == 5;
    const Output turned =
        b_.op("Transpose", {weights(filter), ints(volumes ? Ints{2, 3, 4, 1, 0} : Ints{2, 3, 1, 0})});
    h_ = b_.op(op(), {h_, turned}, attrs());
  }
  /// As TensorFlow does.
  void with_outputs_behind(const Shape& filter, std::int64_t stride = 1) {
    h_ = b_.op(op(), {h_, weights(filter)}, attrs(stride));
  }
  void enlarge(const Shape& filter, const Ints& sizes) {
    h_ = b_.op("Conv3DBackpropInputV2", {ints(sizes), weights(filter), h_}, attrs(2));
  }
  void function(const char* name) { h_ = b_.op(name, {h_}); }
  void bias(std::int64_t channels) {
    Ints shape(format_.size(), 1);
    shape[format_.find('C')] = channels;
    h_ = b_.add(h_, weights(Shape(shape)));
  }
  /// Of a volume [n, c, d, h, w], as an image whose rows are those of all planes.
  void norm(const Ints& sizes) {
    const Output image = b_.reshape(h_, {sizes[0], sizes[1], sizes[2] * sizes[3], sizes[4]});
    const Output nothing = b_.constant(Tensor::zeros(DType::Float32, {0}));
    const Output made =
        b_.op("FusedBatchNormV3", {image, weights({sizes[1]}), weights({sizes[1]}), nothing, nothing},
              {{"is_training", true}, {"data_format", "NCHW"}, {"epsilon", 0.1F}});
    h_ = b_.reshape(made, sizes);
  }
  void pool() {
    h_ = b_.op("MaxPool3D", {h_},
               {{"ksize", Ints{1, 1, 2, 2, 1}},
                {"strides", Ints{1, 1, 2, 2, 1}},
                {"padding", "SAME"},
                {"data_format", format_}});
  }

  Towers finished() {
    const Output loss = b_.reduce_mean(b_.mul(h_, b_.op("Tanh", {h_})));
    Towers made;
    made.graph = import_graph(b_.graph());
    made.request.feeds = {{"x", DType::Float32, made.graph.node(made.graph.find("x")).outputs[0].shape}};
    made.request.fetches = {loss.name()};
    add_training(made, OptimizerKind::Sgd);
    return made;
  }

 private:
  std::string format_;
  GraphBuilder b_;
  Output h_;
  int variables_ = 0;
};

/// Convolutions by their filters: those that are as the library reads them, and others.
std::pair<int, int> convolutions_of(const Program& program) {
  int first = 0, others = 0;
  for (const ProgramOp& op : program.ops)
    if (op.op.find("Conv") != std::string::npos)
      ++(program.graph.node(op.node).attrs.get<std::string>("filter_format", "") == "OHWI" ? first : others);
  return {first, others};
}

TEST(FilterOrderTest, FiltersWithOutputsInFrontAreReadAsTheyLie) {
  FilterModel model("NHWC", {2, 6, 5, 4});
  model.with_outputs_in_front({8, 4, 1, 1});
  model.bias(8);
  model.function("Relu");
  model.with_outputs_in_front({6, 4, 3, 2});
  model.with_outputs_in_front({3, 6, 1, 1});
  const Towers made = model.finished();
  const auto program = compile_for(made);
  EXPECT_EQ(convolutions_of(*program), std::pair(3 + 2 + 3, 0));
  EXPECT_EQ(count_ops(*program, "Transpose"), 2) << "of the one filter that has places, and of its gradient";
  expect_variables_of_a_step(made, *program);
}

TEST(FilterOrderTest, OthersAreTurnedOnceForAConvolutionAndItsGradient) {
  FilterModel model("NHWC", {2, 6, 5, 4});
  model.with_outputs_behind({3, 2, 4, 6});
  model.function("Relu");
  model.with_outputs_behind({1, 3, 2, 9}, 2);  // three groups
  const Towers made = model.finished();
  const auto program = compile_for(made);
  EXPECT_EQ(convolutions_of(*program), std::pair(2 + 1 + 2, 0));
  EXPECT_EQ(count_ops(*program, "Transpose"), 2 * 2);
  expect_variables_of_a_step(made, *program);
}

TEST(FilterOrderTest, ProgramsOfTheHostKeepTheirs) {
  FilterModel model("NHWC", {2, 6, 5, 4});
  model.with_outputs_behind({3, 2, 4, 6});
  const Towers made = model.finished();
  const auto program = compile_towers(made, BatchSiblings::Off, 1);
  EXPECT_EQ(convolutions_of(*program), std::pair(0, 2));
}

TEST(FilterOrderTest, VolumesHaveTheirChannelsLast) {
  FilterModel model("NCDHW", {2, 3, 4, 6, 5});
  model.with_outputs_in_front({8, 3, 3, 2, 3});
  model.bias(8);
  model.norm({2, 8, 4, 6, 5});
  model.function("Relu");
  model.pool();
  model.with_outputs_behind({2, 2, 3, 8, 4}, 2);
  model.norm({2, 4, 1, 2, 3});
  model.enlarge({2, 2, 2, 5, 4}, {2, 5, 2, 4, 6});
  model.with_outputs_in_front({2, 5, 1, 1, 1});
  const Towers made = model.finished();
  const auto program = compile_for(made);
  std::int64_t images = 0;
  for (const ProgramOp& op : program->ops) {
    const Node& node = program->graph.node(op.node);
    EXPECT_NE(node.attrs.get<std::string>("data_format", ""), "NCDHW") << node.name;
    EXPECT_NE(node.attrs.get<std::string>("data_format", ""), "NCHW") << node.name;
    if (op.op != "Transpose") continue;
    const Tensor* order = program->graph.known_value(node.inputs[1]);
    ASSERT_TRUE(order);
    if (tensor_to_int64s(*order)[0] == 0 && node.outputs[0].shape[0] == 2)
      images += node.outputs[0].shape.elements();
  }
  EXPECT_LE(images, 2 * 3 * 4 * 6 * 5 + 2 * 2 * 2 * 4 * 6) << "the input, and the gradient of the loss";
  expect_variables_of_a_step(made, *program);
}

}  // namespace
}  // namespace braid::testing
