// Joined columns get zeros beside them where products would otherwise read rows that are not aligned, and
// mean the same: values and gradients of the variables.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "engine/autodiff/gradients.h"
#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "examples/models/multi_branch.h"
#include "proto/graph.pb.h"
#include "tests/engine/exec/test_ops.h"
#include "tests/engine/testing/interpreter.h"

namespace braid::testing {
namespace {

constexpr std::int64_t kUnits = 256;

struct Model {
  Graph graph;
  std::vector<std::pair<std::string, Tensor>> feeds;
  std::vector<std::string> fetches;  // the loss and the gradients of all dense variables

  std::shared_ptr<const Program> compiled(Domain domain = Domain::Device) const {
    CompileRequest request;
    for (const auto& [name, value] : feeds) request.feeds.push_back({name, value.dtype(), value.shape()});
    request.fetches = fetches;
    CompileOptions options;
    options.domain = domain;
    return compile(graph, request, options);
  }
};

Model with_gradients(const GraphBuilder& b, const Output& loss,
                     std::vector<std::pair<std::string, Tensor>> feeds) {
  Model made{import_graph(b.graph()), std::move(feeds), {loss.name()}};
  for (const VariableGradient& gradient : add_gradients(made.graph, made.graph.parse_value(loss.name()))) {
    if (!gradient.dense.valid()) continue;
    Node seen;  // under a name that no pass changes
    seen.op = &OpRegistry::global().require("Identity");
    seen.name = made.graph.unique_name("gradient");
    seen.inputs = {gradient.dense};
    made.fetches.push_back(seen.name);
    made.graph.add(std::move(seen));
  }
  return made;
}

/// relu([x, z] w) of `rows` examples with 20 and `width` columns; w is [units, columns] where it is
/// transposed.
Model joined_columns(std::int64_t rows, std::int64_t width, bool transposed, bool read_elsewhere = false) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, Shape{rows, 20});
  const Output z = b.mul(b.placeholder("z", DType::Float32, Shape{rows, width}),
                         b.read(b.variable("scale", Shape{width}, {})));
  const Output joined = b.op("ConcatV2", {x, z, b.constant(Tensor::scalar<std::int32_t>(1))});
  const std::int64_t columns = 20 + width;
  const Output w = b.variable("w", transposed ? Shape{kUnits, columns} : Shape{columns, kUnits}, {});
  Output loss =
      b.reduce_mean(b.op("Square", {b.op("MatMul", {joined, b.read(w)}, {{"transpose_b", transposed}})}));
  if (read_elsewhere) loss = b.add(loss, b.reduce_mean(b.op("Square", {joined})));
  return with_gradients(b, loss,
                        {{"x", random_floats({rows, 20}, 1)}, {"z", random_floats({rows, width}, 2)}});
}

/// Products in the program whose first factor has rows of more than 16 columns that are no multiple of 16
/// bytes.
int unaligned_products(const Program& program) {
  int count = 0;
  for (const ProgramOp& op : program.ops) {
    if (op.op != "MatMul" && op.op != "braid.FusedMatMul") continue;
    const Shape& first = program.graph.info(program.graph.node(op.node).inputs[0]).shape;
    const std::int64_t columns = first[first.rank() - 1];
    count += columns > 16 && columns % 4 != 0 ? 1 : 0;
  }
  return count;
}

void expect_same_values(const Model& model, const Program& program) {
  const auto run = [&](const Graph& graph) {
    Interpreter interpreter(graph);
    unsigned seed = 10;
    for (const VariableInfo& variable : list_variables(model.graph))
      interpreter.variables()[variable.name] = random_floats(variable.shape, seed++);
    return interpreter.run({model.feeds.begin(), model.feeds.end()}, model.fetches);
  };
  const std::vector<Tensor> expected = run(model.graph), got = run(program.graph);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t f = 0; f < got.size(); ++f) {
    ASSERT_EQ(got[f].shape(), expected[f].shape()) << model.fetches[f];
    float largest = 0, error = 0;
    for (std::size_t i = 0; i < got[f].data<float>().size(); ++i) {
      largest = std::max(largest, std::abs(expected[f].data<float>()[i]));
      error = std::max(error, std::abs(expected[f].data<float>()[i] - got[f].data<float>()[i]));
    }
    EXPECT_LE(error, 1e-5F * largest) << model.fetches[f];
    EXPECT_GT(largest, 0) << model.fetches[f];
  }
}

TEST(AlignProductsTest, JoinedColumnsGetZeros) {
  const Model model = joined_columns(4100, 81, false);
  EXPECT_GT(unaligned_products(*model.compiled(Domain::Host)), 0);
  const auto program = model.compiled();
  EXPECT_EQ(unaligned_products(*program), 0);
  EXPECT_EQ(count_ops(*program, "Pad"), 1);
  expect_same_values(model, *program);
}

TEST(AlignProductsTest, TransposedWeightsGetThemUnlessTheyAreTrained) {
  Model model = joined_columns(4100, 81, true);
  EXPECT_EQ(count_ops(*model.compiled(), "Pad"), 0);
  model.fetches.resize(1);
  const auto program = model.compiled();
  EXPECT_EQ(count_ops(*program, "Pad"), 1);
  expect_same_values(model, *program);
}

TEST(AlignProductsTest, TheGradientOfTheWeightsIsAView) {
  const Model model = joined_columns(4100, 81, false);
  const auto program = model.compiled();
  const bool there = std::any_of(program->ops.begin(), program->ops.end(), [&](const ProgramOp& op) {
    return program->graph.node(op.node).outputs[0].shape == Shape{104, kUnits} && op.op == "MatMul";
  });
  EXPECT_TRUE(there);
  EXPECT_EQ(count_ops(*program, "braid.LeadingRows"), 0) << "it has no kernel";
}

TEST(AlignProductsTest, SmallAlignedOrSharedFactorsAreLeftAlone) {
  for (const Model& model : {joined_columns(41, 81, false), joined_columns(4100, 80, false),
                             joined_columns(4100, 81, false, true)})
    EXPECT_EQ(count_ops(*model.compiled(), "Pad"), 0);
}

TEST(AlignProductsTest, TheInteractionOfDlrmIsWrittenInPlace) {
  constexpr std::int64_t kRows = 5400;
  GraphBuilder b;
  std::vector<Output> ids;
  std::vector<std::pair<std::string, Tensor>> feeds{{"x", random_floats({kRows, 12}, 1)},
                                                    {"y", random_floats({kRows}, 2)}};
  std::mt19937 random(3);
  for (int t = 0; t < 6; ++t) {
    feeds.emplace_back("ids" + std::to_string(t), Tensor::zeros(DType::Int64, {kRows}));
    for (std::int64_t& id : feeds.back().second.data<std::int64_t>()) id = random() % 50;
    ids.push_back(b.placeholder(feeds.back().first, DType::Int64, Shape{kRows}));
  }
  const Output loss = build_dlrm_branches(b, b.placeholder("x", DType::Float32, Shape{kRows, 12}), 12, ids,
                                          50, 16, b.placeholder("y", DType::Float32, Shape{kRows}), 0);
  const Model model = with_gradients(b, loss, std::move(feeds));
  const auto program = model.compiled();
  EXPECT_EQ(count_ops(*program, "braid.PairDots"), 1);
  for (const char* gone : {"ConcatV2", "Pack", "Unpack"}) EXPECT_EQ(count_ops(*program, gone), 0) << gone;
  EXPECT_EQ(unaligned_products(*program), 0);
  expect_same_values(model, *program);
}

}  // namespace
}  // namespace braid::testing
