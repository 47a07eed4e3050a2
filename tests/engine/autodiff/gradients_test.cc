// Structure of backward graphs, and gradients of small models against central differences of the loss.
#include "engine/autodiff/gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/support/message_of.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Interpreter;

Tensor floats(Shape shape, std::vector<float> values) {
  return Tensor::from<float>(std::move(shape), values);
}
Tensor ids(std::vector<std::int64_t> values) {
  return Tensor::from<std::int64_t>({static_cast<std::int64_t>(values.size())}, values);
}

// Values that are different everywhere and not near a kink of Relu.
Tensor spread(const Shape& shape) {
  Tensor tensor(DType::Float32, shape);
  float value = 0.35F;
  for (float& element : tensor.data<float>()) {
    element = value;
    value = value > 0 ? -value - 0.07F : -value * 0.9F + 0.05F;
  }
  return tensor;
}

std::string error_of(Graph& graph, const Output& loss) {
  return message_of([&] { add_gradients(graph, graph.parse_value(loss.name())); });
}

std::vector<std::string> ops_added(const Graph& graph, int first) {
  std::vector<std::string> ops;
  for (NodeId id = first; id < graph.size(); ++id) {
    if (!graph.node(id).removed) ops.push_back(graph.node(id).op->name);
  }
  std::sort(ops.begin(), ops.end());
  return ops;
}

// The dense value of a gradient, computed by the graph.
Tensor evaluate(const Graph& graph, Interpreter& interpreter, const VariableGradient& gradient,
                const Interpreter::Feeds& feeds) {
  if (gradient.dense.valid()) return interpreter.run(feeds, {graph.value_name(gradient.dense)})[0];
  const auto parts = interpreter.run(
      feeds, {graph.value_name(gradient.slices->indices), graph.value_name(gradient.slices->values)});
  Tensor dense = Tensor::zeros(DType::Float32, gradient.variable.shape);
  const std::vector<std::int64_t> rows = tensor_to_int64s(parts[0]);
  const auto values = parts[1].data<float>();
  const std::size_t width = values.size() / rows.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    dense.data<float>()[static_cast<std::size_t>(rows[i / width]) * width + i % width] += values[i];
  }
  return dense;
}

// Every variable of the graph gets spread() values; every element's gradient is compared with a central
// difference.
void expect_gradients_match_differences(GraphBuilder& b, const Output& loss,
                                        const Interpreter::Feeds& feeds) {
  Graph graph = import_graph(b.graph());
  const std::vector<VariableGradient> gradients = add_gradients(graph, graph.parse_value(loss.name()));
  ASSERT_FALSE(gradients.empty());
  Interpreter interpreter(graph);
  for (const VariableInfo& variable : list_variables(graph)) {
    interpreter.variables()[variable.name] = spread(variable.shape);
  }
  const auto loss_at = [&] {
    return static_cast<double>(interpreter.run(feeds, {loss.name()})[0].data<float>()[0]);
  };
  constexpr float kStep = 5e-3F;
  for (const VariableGradient& gradient : gradients) {
    const Tensor actual = evaluate(graph, interpreter, gradient, feeds);
    ASSERT_EQ(actual.shape(), gradient.variable.shape);
    auto weights = interpreter.variables()[gradient.variable.name].data<float>();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const float kept = weights[i];
      weights[i] = kept + kStep;
      const double above = loss_at();
      weights[i] = kept - kStep;
      const double below = loss_at();
      weights[i] = kept;
      const double expected = (above - below) / (2 * kStep);
      EXPECT_NEAR(actual.data<float>()[i], expected, 2e-3 * (1 + std::abs(expected)))
          << gradient.variable.name << "[" << i << "]";
    }
  }
}

Output mean_square(GraphBuilder& b, const Output& x) { return b.reduce_mean(b.mul(x, x)); }

TEST(GradientsTest, LinearRegression) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {-1, 3});
  const Output y = b.placeholder("y", DType::Float32, {-1, 1});
  const Output prediction = b.dense("model", x, 3, 1, false);
  const Output loss = mean_square(b, b.op("Sub", {prediction, y}));
  expect_gradients_match_differences(b, loss, {{"x", spread({4, 3})}, {"y", floats({4, 1}, {1, 0, -1, 2})}});
}

TEST(GradientsTest, AnMlpThatUsesItsWeightsTwice) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {-1, 3});
  const Output w = b.variable("w", {3, 3}, {});
  const Output h1 = b.op("Tanh", {b.matmul(x, b.read(w))});
  const Output h2 = b.op("Tanh", {b.matmul(h1, b.read(w))});
  const Output loss = mean_square(b, b.dense("out", h2, 3, 2, false));
  expect_gradients_match_differences(b, loss, {{"x", spread({5, 3})}});
}

TEST(GradientsTest, AnEmbeddingGetsRowsAndRepeatedIndicesAdd) {
  GraphBuilder b;
  const Output table = b.variable("table", {5, 2}, {.sparse = true});
  const Output rows = b.gather(table, b.placeholder("ids", DType::Int64, {-1}));
  const Output loss = mean_square(b, rows);
  Graph graph = import_graph(b.graph());
  const auto gradients = add_gradients(graph, graph.parse_value(loss.name()));
  ASSERT_EQ(gradients.size(), 1u);
  EXPECT_TRUE(gradients[0].slices.has_value());
  EXPECT_FALSE(gradients[0].dense.valid());
  expect_gradients_match_differences(b, loss, {{"ids", ids({3, 1, 3})}});
}

TEST(GradientsTest, SeveralGathersOfOneTableAreOneGradientOfAllRows) {
  GraphBuilder b;
  const Output table = b.variable("table", {5, 2}, {.sparse = true});
  const Output left = b.gather(table, b.placeholder("left", DType::Int64, {-1}));
  const Output right = b.gather(table, b.op("Cast", {b.placeholder("right", DType::Int64, {-1})},
                                            {{"SrcT", DType::Int64}, {"DstT", DType::Int32}}));
  const Output loss = mean_square(b, b.add(left, b.op("Square", {right})));
  Graph graph = import_graph(b.graph());
  const auto gradients = add_gradients(graph, graph.parse_value(loss.name()));
  ASSERT_EQ(gradients.size(), 1u);
  ASSERT_TRUE(gradients[0].slices.has_value());
  EXPECT_EQ(graph.info(gradients[0].slices->indices).dtype, DType::Int64);
  expect_gradients_match_differences(b, loss, {{"left", ids({0, 1})}, {"right", ids({1, 4})}});
}

TEST(GradientsTest, ATableThatIsAlsoUsedWholeGetsADenseGradient) {
  GraphBuilder b;
  const Output table = b.variable("table", {4, 2}, {.sparse = true});
  const Output rows = b.gather(table, b.placeholder("ids", DType::Int64, {-1}));
  const Output loss = b.add(mean_square(b, rows), mean_square(b, b.read(table)));
  Graph graph = import_graph(b.graph());
  const auto gradients = add_gradients(graph, graph.parse_value(loss.name()));
  ASSERT_EQ(gradients.size(), 1u);
  EXPECT_TRUE(gradients[0].dense.valid());
  expect_gradients_match_differences(b, loss, {{"ids", ids({3, 1, 3})}});
}

class PlainGatherTest : public ::testing::TestWithParam<bool> {};

TEST_P(PlainGatherTest, OfAReadValueIsSparseUnlessTheValueIsUsedOtherwise) {
  const bool used_whole = GetParam();
  GraphBuilder b;
  const Output value = b.op("Identity", {b.read(b.variable("table", {4, 2}, {}))});
  const Output rows = b.op("GatherV2", {value, b.placeholder("ids", DType::Int64, {-1, 2}),
                                        b.constant(Tensor::scalar<std::int32_t>(0))});
  Output loss = mean_square(b, rows);
  if (used_whole) loss = b.add(loss, mean_square(b, value));
  Graph graph = import_graph(b.graph());
  const auto gradients = add_gradients(graph, graph.parse_value(loss.name()));
  ASSERT_EQ(gradients.size(), 1u);
  EXPECT_EQ(gradients[0].slices.has_value(), !used_whole);
  const Tensor indices = Tensor::from<std::int64_t>({1, 2}, std::vector<std::int64_t>{3, 0});
  expect_gradients_match_differences(b, loss, {{"ids", indices}});
}
INSTANTIATE_TEST_SUITE_P(UsedWhole, PlainGatherTest, ::testing::Bool());

TEST(GradientsTest, OnlyNodesBetweenVariablesAndLossGetBackwardNodes) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {4, 3});
  const Output features = b.op("Tanh", {x});
  const Output frozen = b.read(b.variable("frozen", {3, 3}, {.trainable = false}));
  const Output w = b.read(b.variable("w", {3, 1}, {}));
  const Output loss = mean_square(b, b.matmul(b.matmul(features, frozen), w));
  b.op("Exp", {w}, {}, "beside");
  Graph graph = import_graph(b.graph());
  const int first = graph.size();
  const auto gradients = add_gradients(graph, graph.parse_value(loss.name()));
  ASSERT_EQ(gradients.size(), 1u);
  EXPECT_EQ(gradients[0].variable.name, "w");
  int matmuls = 0;
  for (const std::string& op : ops_added(graph, first)) {
    EXPECT_THAT(op, ::testing::AllOf(::testing::Ne("TanhGrad"), ::testing::Ne("Exp")));
    matmuls += op == "MatMul";
  }
  EXPECT_EQ(matmuls, 1);  // of the kernel of the last layer, and none of its input
}

TEST(GradientsTest, BackwardNodesFollowTheirForwardNode) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {4, 3});
  const Output w = b.read(b.variable("w", {3, 3}, {}));
  Output h;
  Output y;
  {
    DeviceScope device(b, "/cpu:0");
    StreamScope stream(b, 1);
    h = b.op("Tanh", {b.matmul(x, w)}, {}, "follows");
  }
  {
    StreamScope stream(b, 2, false);
    y = b.op("Tanh", {h}, {}, "stays");
  }
  const Output loss = mean_square(b, y);
  Graph graph = import_graph(b.graph());
  const int first = graph.size();
  add_gradients(graph, graph.parse_value(loss.name()));
  int followed = 0;
  int stayed = 0;
  for (NodeId id = first; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed) continue;
    EXPECT_THAT(node.name, ::testing::StartsWith("gradients/"));
    ASSERT_NE(node.forward_of, kNoNode);
    if (node.forward_of == graph.find("follows")) {
      EXPECT_EQ(node.stream, 1);
      EXPECT_EQ(node.device, "/cpu:0");
      ++followed;
    }
    if (node.forward_of == graph.find("stays")) {
      EXPECT_EQ(node.stream, kNoStream);
      ++stayed;
    }
  }
  EXPECT_GT(followed, 0);
  EXPECT_GT(stayed, 0);
}

TEST(GradientsTest, StopGradientEndsTheWay) {
  GraphBuilder b;
  const Output w = b.read(b.variable("w", {2}, {}));
  const Output u = b.read(b.variable("u", {2}, {}));
  const Output loss = mean_square(b, b.mul(b.op("StopGradient", {b.op("Exp", {w})}), u));
  Graph graph = import_graph(b.graph());
  const auto gradients = add_gradients(graph, graph.parse_value(loss.name()));
  ASSERT_EQ(gradients.size(), 1u);
  EXPECT_EQ(gradients[0].variable.name, "u");
}

TEST(GradientsTest, IntegersAndShapesCarryNoGradient) {
  GraphBuilder b;
  const Output w = b.read(b.variable("w", {2, 3}, {}));
  const Output rows = b.op("Cast", {b.op("Shape", {w}, {{"out_type", DType::Int32}})},
                           {{"SrcT", DType::Int32}, {"DstT", DType::Float32}});
  const Output loss = b.add(mean_square(b, w), b.reduce_mean(rows));
  expect_gradients_match_differences(b, loss, {});
}

TEST(GradientsTest, AllOpsWithoutAGradientAreNamedAtOnceAndTheGraphIsKept) {
  GraphBuilder b;
  const Output w = b.read(b.variable("w", {2}, {}));
  const Output u = b.read(b.variable("u", {2}, {}));
  const Output first = b.op("PreventGradient", {w}, {}, "first");
  const Output second = b.op("PreventGradient", {b.op("Exp", {u})}, {}, "second");
  const Output above = b.op("PreventGradient", {b.op("Exp", {first})}, {}, "above");
  const Output loss = mean_square(b, b.add(above, second));
  Graph graph = import_graph(b.graph());
  const int size = graph.size();
  const std::string message = error_of(graph, loss);
  EXPECT_THAT(message, HasSubstr("the gradient of '" + loss.name() + "' needs ops that have none:"));
  EXPECT_THAT(message, HasSubstr("[PreventGradient] node 'first'"));
  EXPECT_THAT(message, HasSubstr("[PreventGradient] node 'second'"));
  EXPECT_THAT(message, HasSubstr("[PreventGradient] node 'above'"));
  EXPECT_EQ(graph.size(), size);
}

// What @tf.custom_gradient leaves in a GraphDef: its results and arguments go through an IdentityN that names
// a Python function.
TEST(GradientsTest, ANodeWithAGradientOfItsOwnIsRefusedByName) {
  const auto build = [](const char* gradient, bool stopped) {
    GraphBuilder b;
    const Output w = b.read(b.variable("w", {2}, {}));
    Output x = b.op("Exp", {w});
    const std::vector<DType> types{DType::Float32, DType::Float32};
    Output own = b.op("IdentityN", {x, w}, {{"T", types}, {"_gradient_op_type", gradient}}, "clipped");
    if (stopped) own = b.op("StopGradient", {own});
    const Output loss = mean_square(b, b.add(w, own));
    Graph graph = import_graph(b.graph());
    return error_of(graph, loss);
  };
  const std::string message = build("CustomGradient-5", false);
  EXPECT_THAT(message, HasSubstr("[IdentityN] node 'clipped': has a gradient of its own"));
  EXPECT_THAT(message, HasSubstr("'CustomGradient-5'"));
  EXPECT_EQ(build("IdentityN", false), "nothing was thrown") << "the op's own name is the usual gradient";
  EXPECT_EQ(build("CustomGradient-5", true), "nothing was thrown") << "no gradient is asked for through it";
}

TEST(GradientsTest, ALossMustBeAFloatScalar) {
  GraphBuilder b;
  const Output w = b.read(b.variable("w", {2}, {}));
  const Output count = b.op("Size", {w}, {}, "count");
  Graph graph = import_graph(b.graph());
  EXPECT_THAT(
      error_of(graph, w),
      HasSubstr("[ReadVariableOp] node 'ReadVariableOp': a loss must be a float scalar, got float32 [2]"));
  EXPECT_THAT(error_of(graph, count), HasSubstr("a loss must be a float scalar, got int32 []"));
}

TEST(GradientsTest, TheSameGraphGivesTheSameBackwardGraph) {
  const auto names = [] {
    GraphBuilder b;
    const Output x = b.placeholder("x", DType::Float32, {-1, 3});
    const Output loss = mean_square(b, b.dense("b", b.dense("a", x, 3, 4, true), 4, 1, false));
    Graph graph = import_graph(b.graph());
    std::string text;
    for (const VariableGradient& gradient : add_gradients(graph, graph.parse_value(loss.name()))) {
      text += gradient.variable.name + "=" + graph.value_name(gradient.dense) + " ";
    }
    for (NodeId id = 0; id < graph.size(); ++id) text += graph.node(id).name + " ";
    return text;
  };
  EXPECT_EQ(names(), names());
}

}  // namespace
}  // namespace braid
