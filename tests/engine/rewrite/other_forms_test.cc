// Forms in which other frameworks write columns and products: slices of one place each, the same done to each
// of them, transposed factors. Their nodes become few, and mean the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "engine/autodiff/gradients.h"
#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

constexpr std::int64_t kRows = 5;

class OtherFormsTest : public ::testing::Test {
 protected:
  Output ints(std::vector<std::int32_t> values) {
    const auto n = static_cast<std::int64_t>(values.size());
    return b_.constant(Tensor::from<std::int32_t>(Shape{n}, values));
  }
  Output number(std::int64_t value) { return b_.constant(Tensor::scalar<std::int64_t>(value)); }

  /// x[:, place] of x [rows, n].
  Output column(const Output& x, std::int32_t place) {
    return b_.op("StridedSlice", {x, ints({0, place}), ints({0, place + 1}), ints({1, 1})},
                 {{"begin_mask", std::int64_t{1}},
                  {"end_mask", std::int64_t{1}},
                  {"shrink_axis_mask", std::int64_t{2}}});
  }
  Output placeholder(const char* name, const Tensor& value) {
    feeds_.emplace(name, value);
    specs_.push_back({name, value.dtype(), value.shape()});
    return b_.placeholder(name, value.dtype(), value.shape());
  }
  Tensor ids(std::int64_t columns) const {
    Tensor made = Tensor::zeros(DType::Int64, {kRows, columns});
    std::int64_t at = 0;
    for (std::int64_t& id : made.data<std::int64_t>()) id = at++ * 7 % 19 - 9;
    return made;
  }

  /// The program of these values, after checking that it gives what the graph as written gives.
  std::shared_ptr<const Program> checked(const std::vector<Output>& values, bool gradients = false,
                                         bool bits = true) {
    Graph graph = import_graph(b_.graph());
    std::vector<std::string> fetches;
    for (const Output& value : values) fetches.push_back(value.name());
    if (gradients)
      for (const VariableGradient& gradient : add_gradients(graph, graph.parse_value(fetches[0])))
        fetches.push_back(graph.value_name(gradient.dense));
    CompileOptions options;
    options.domain = Domain::Host;
    options.fusion = fusion_;
    const auto program = compile(graph, {specs_, fetches, {}}, options);
    const auto run = [&](const Graph& g) {
      Interpreter interpreter(g);
      interpreter.variables() = variables_;
      return interpreter.run(feeds_, fetches);
    };
    const std::vector<Tensor> expected = run(graph), got = run(program->graph);
    for (std::size_t f = 0; f < fetches.size(); ++f) {
      EXPECT_EQ(got[f].shape(), expected[f].shape()) << fetches[f];
      if (bits) {
        EXPECT_EQ(std::memcmp(got[f].raw(), expected[f].raw(), expected[f].bytes()), 0) << fetches[f];
        continue;
      }
      for (std::size_t i = 0; i < expected[f].data<float>().size(); ++i)
        EXPECT_NEAR(got[f].data<float>()[i], expected[f].data<float>()[i], 1e-5F) << fetches[f] << ", " << i;
    }
    return program;
  }

  GraphBuilder b_;
  Interpreter::Feeds feeds_;
  std::vector<FeedSpec> specs_;
  std::map<std::string, Tensor> variables_;
  bool fusion_ = false;
};

TEST_F(OtherFormsTest, SlicesOfAllColumnsAreOneUnpack) {
  const Output x = placeholder("x", ids(4));
  std::vector<Output> columns;
  for (const std::int32_t place : {2, 0, 3, 1, 2}) columns.push_back(column(x, place));
  columns.push_back(column(x, -1));  // the last one
  for (Output& value : columns) value = b_.reshape(value, {kRows, 1});
  const auto program = checked(columns);
  EXPECT_EQ(count_ops(*program, "StridedSlice"), 0);
  EXPECT_EQ(count_ops(*program, "Unpack"), 1);
}

TEST_F(OtherFormsTest, GathersOfOnePlaceAreSlicesToo) {
  const Output x = placeholder("x", random_floats({2, 3, 4}, 1));
  std::vector<Output> parts;
  for (const std::int32_t place : {0, 2})
    parts.push_back(b_.op("GatherV2", {x, b_.constant(Tensor::scalar<std::int32_t>(place)),
                                       b_.constant(Tensor::scalar<std::int32_t>(-2))}));
  for (Output& value : parts) value = b_.reshape(value, {8});
  const auto program = checked(parts);
  EXPECT_EQ(count_ops(*program, "GatherV2"), 0);
  EXPECT_EQ(count_ops(*program, "Unpack"), 1);
}

TEST_F(OtherFormsTest, SlicesMayKeepTheirAxis) {
  const Output x = placeholder("x", random_floats({3, 1, 4}, 1));
  std::vector<Output> parts;
  for (const std::int32_t place : {0, 1, 2})
    parts.push_back(
        b_.reshape(b_.op("StridedSlice", {x, ints({place}), ints({place + 1}), ints({1})}), {1, 4}));
  const auto program = checked(parts);
  EXPECT_EQ(count_ops(*program, "StridedSlice"), 0);
  EXPECT_EQ(count_ops(*program, "Unpack"), 1);
}

TEST_F(OtherFormsTest, FewSlicesOfManyPlacesAndRangesStay) {
  const Output x = placeholder("x", ids(7));
  const Output range = b_.op("StridedSlice", {x, ints({0, 1}), ints({0, 3}), ints({1, 1})},
                             {{"begin_mask", std::int64_t{1}}, {"end_mask", std::int64_t{1}}});
  const Output kept = b_.op("StridedSlice", {x, ints({0, 1}), ints({0, 2}), ints({1, 1})},
                            {{"begin_mask", std::int64_t{1}}, {"end_mask", std::int64_t{1}}});
  const auto program = checked({column(x, 0), column(x, 4), range, kept});
  EXPECT_EQ(count_ops(*program, "StridedSlice"), 4);
  EXPECT_EQ(count_ops(*program, "Unpack"), 0);
}

TEST_F(OtherFormsTest, EverySecondPlaceIsOneOfAPair) {
  const Output x = placeholder("x", random_floats({2, 6, 3}, 1));
  const auto each = [&](std::int32_t begin, std::int32_t step) {
    return b_.op("StridedSlice", {x, ints({0, begin}), ints({2, 6}), ints({1, step})});
  };
  std::vector<Output> pairs, thirds;
  for (const std::int32_t begin : {1, 0}) pairs.push_back(b_.reshape(each(begin, 2), {18}));
  for (const std::int32_t begin : {0, 2}) thirds.push_back(b_.reshape(each(begin, 3), {12}));
  for (const auto& parts : {pairs, thirds}) {
    const auto program = checked(parts);
    EXPECT_EQ(count_ops(*program, "StridedSlice"), 0);
    EXPECT_EQ(count_ops(*program, "Unpack"), 1);
  }
  // Some of the places of a run, or one slice alone.
  for (const Output& part : {each(2, 2), each(1, 3)})
    EXPECT_EQ(count_ops(*checked({b_.reshape(part, {-1})}), "StridedSlice"), 1);
}

class SlicedVariableTest : public OtherFormsTest {
 protected:
  SlicedVariableTest() {
    variables_ = {{"w", random_floats({kRows, 3}, 2)}};
    const Output x = placeholder("x", random_floats({kRows, 3}, 1));
    y_ = b_.mul(x, b_.read(b_.variable("w", Shape{kRows, 3}, {})));
  }
  Output loss_of_columns() {
    const Output sum = b_.add(b_.op("Square", {column(y_, 0)}), b_.op("Tanh", {column(y_, 1)}));
    return b_.reduce_mean(b_.add(sum, b_.op("Exp", {column(y_, 2)})));
  }
  static void expect_packed(const Program& program) {
    EXPECT_EQ(count_ops(program, "StridedSliceGrad"), 0);
    EXPECT_EQ(count_ops(program, "Pack"), 1);
  }
  Output y_;
};

TEST_F(SlicedVariableTest, GradientsOfAllSlicesLieSideBySide) {
  expect_packed(*checked({loss_of_columns()}, true, false));
}

TEST_F(SlicedVariableTest, GradientsOfSlicesThatKeepTheirAxisAndOfGathersDoSo) {
  const Output first = b_.op("StridedSlice", {y_, ints({0, 0}), ints({kRows, 1}), ints({1, 1})});
  const auto gathered = [&](std::int32_t place) {
    const Output index = b_.constant(Tensor::scalar<std::int32_t>(place));
    return b_.reshape(b_.op("GatherV2", {y_, index, b_.constant(Tensor::scalar<std::int32_t>(1))}),
                      {kRows, 1});
  };
  const Output sum = b_.add(b_.op("Square", {first}), b_.op("Tanh", {gathered(2)}));
  const auto program = checked({b_.reduce_mean(b_.add(sum, b_.op("Exp", {gathered(1)})))}, true, false);
  expect_packed(*program);
  EXPECT_EQ(count_ops(*program, "braid.GatherGrad"), 0);
}

TEST_F(SlicedVariableTest, GradientsOfPairsLieSideBySide) {
  const Output wide = b_.reshape(y_, {1, 3 * kRows});
  const auto each = [&](std::int32_t begin) {
    return b_.op("StridedSlice", {wide, ints({0, begin}), ints({1, 3 * kRows}), ints({1, 3})});
  };
  const Output sum = b_.add(b_.op("Square", {each(0)}), b_.op("Tanh", {each(2)}));
  const Output loss = b_.reduce_mean(b_.mul(sum, b_.op("Exp", {each(1)})));
  expect_packed(*checked({loss}, true, false));
  expect_packed(*checked({b_.add(loss, b_.reduce_mean(b_.op("Sigmoid", {wide})))}, true, false));
}

TEST_F(SlicedVariableTest, OtherGradientsAreAddedToThem) {
  const Output loss = b_.add(loss_of_columns(), b_.reduce_mean(b_.op("Sigmoid", {y_})));
  expect_packed(*checked({loss}, true, false));
}

TEST_F(OtherFormsTest, WhatIsDoneToEachColumnAlikeIsDoneOnce) {
  const Output x = placeholder("x", ids(3));
  std::vector<Output> wrapped;
  const std::int64_t sizes[] = {10, 20, 15};
  for (std::int32_t c = 0; c < 3; ++c) {
    const Output id = column(x, c);
    wrapped.push_back(b_.op("SelectV2", {b_.op("Less", {id, number(0)}), b_.add(id, number(sizes[c])), id}));
  }
  // One lane is used in between, too.
  wrapped.push_back(b_.op("Neg", {wrapped[1]}));
  for (Output& value : wrapped) value = b_.reshape(value, {kRows, 1});
  const auto program = checked(wrapped);
  for (const char* once : {"Less", "AddV2", "SelectV2"}) EXPECT_EQ(count_ops(*program, once), 1) << once;
}

TEST_F(OtherFormsTest, ColumnsThatDifferStayApart) {
  const Output x = placeholder("x", ids(3));
  std::vector<Output> values{b_.add(column(x, 0), number(1)), b_.add(number(2), column(x, 1)),
                             b_.add(column(x, 2), number(3))};  // the second one the other way round
  for (Output& value : values) value = b_.reshape(value, {kRows, 1});
  EXPECT_EQ(count_ops(*checked(values), "AddV2"), 3);
}

TEST_F(OtherFormsTest, AZeroThatIsAddedIsGoneUnlessItIsFed) {
  const Output x = placeholder("x", random_floats({2, 3}, 1));
  const Output zero = b_.op("Identity", {b_.constant(Tensor::zeros(DType::Float32, {3}))});
  const Output sum = b_.op("Tanh", {b_.add(x, zero)});
  EXPECT_EQ(count_ops(*checked({sum}), "AddV2"), 0);
  feeds_.emplace(zero.name(), random_floats({3}, 2));
  specs_.push_back({zero.name(), DType::Float32, {3}});
  EXPECT_EQ(count_ops(*checked({sum}), "AddV2"), 1);
}

TEST_F(OtherFormsTest, WhatIsRepeatedForAnOpThatBroadcastsIsReadAsItWas) {
  const Output x = placeholder("x", random_floats({2, 3}, 1)), y = placeholder("y", random_floats({3}, 2));
  const Output wide = b_.op("BroadcastTo", {y, ints({2, 3})});
  for (const char* const op : {"Mul", "SquaredDifference", "GreaterEqual"})
    EXPECT_EQ(count_ops(*checked({b_.reshape(b_.op(op, {x, wide}), {6})}), "BroadcastTo"), 0) << op;
  EXPECT_EQ(count_ops(*checked({b_.reshape(b_.add(x, b_.op("Maximum", {y, wide})), {6})}), "BroadcastTo"), 1)
      << "the shape is of what is repeated alone";
}

TEST_F(OtherFormsTest, AMiddleAxisHasItsConstantsAlongIt) {
  const Output x = placeholder("x", random_floats({2, 3, 4}, 3));
  std::vector<Output> scaled;
  for (std::int32_t place = 0; place < 3; ++place) {
    const Output part = b_.op("GatherV2", {x, b_.constant(Tensor::scalar<std::int32_t>(place)),
                                           b_.constant(Tensor::scalar<std::int32_t>(1))});
    const Output shifted =
        b_.op("Sub", {part, b_.constant(Tensor::scalar(0.5F * static_cast<float>(place)))});
    scaled.push_back(b_.reshape(b_.mul(shifted, b_.constant(Tensor::scalar(2.0F))), {8}));
  }
  const auto program = checked(scaled);
  EXPECT_EQ(count_ops(*program, "Sub"), 1);
  EXPECT_EQ(count_ops(*program, "Mul"), 1);
}

TEST_F(OtherFormsTest, ProductsReadTransposedFactorsAsTheyLie) {
  const Output a = placeholder("a", random_floats({4, 3}, 1)), c = placeholder("c", random_floats({5, 4}, 2));
  const auto turned = [&](const Output& x) { return b_.op("Transpose", {x, ints({1, 0})}); };
  const Output read = b_.reshape(b_.matmul(turned(a), turned(c)), {15});
  const Output given = b_.reshape(turned(b_.matmul(c, a)), {15});
  const auto program = checked({read, given}, false, false);
  EXPECT_EQ(count_ops(*program, "Transpose"), 0);
  EXPECT_EQ(count_ops(*program, "MatMul"), 2);
}

TEST_F(OtherFormsTest, AnEinsumReadsThemByItsLetters) {
  const Output x = placeholder("x", random_floats({2, 3, 4, 5}, 1)),
               y = placeholder("y", random_floats({2, 4, 3, 6}, 2));
  const Output turned = b_.op("Transpose", {x, ints({0, 3, 1, 2})});  // [2, 5, 3, 4]
  const Output back = b_.op("Transpose", {y, ints({1, 0, 3, 2})});    // [4, 2, 6, 3]
  std::vector<Output> values;
  for (const char* equation : {"bijh,hbdj->bijd", "bijh, hbdj -> dib", "bijh,hbdj"})
    values.push_back(b_.op("Neg", {b_.op("Einsum", {turned, back}, {{"equation", std::string(equation)}})}));
  const auto program = checked(values, false, false);
  EXPECT_EQ(count_ops(*program, "Transpose"), 0);
  EXPECT_EQ(count_ops(*program, "Einsum"), 3);
}

TEST_F(OtherFormsTest, SoDoBatchesOfProductsAndTheirGradients) {
  const Output x = placeholder("x", random_floats({2, 4, 3}, 1));
  variables_ = {{"w", random_floats({2, 4, 3}, 2)}};
  const Output y = b_.mul(x, b_.read(b_.variable("w", Shape{2, 4, 3}, {})));
  const Output dots = b_.op("BatchMatMulV2", {y, b_.op("Transpose", {y, ints({0, 2, 1})})});
  const auto program = checked({b_.reduce_mean(b_.op("Square", {dots}))}, true, false);
  EXPECT_EQ(count_ops(*program, "Transpose"), 0);
  EXPECT_EQ(count_ops(*program, "BatchMatMulV2"), 3);
}

/// With regions, as what turns the factors is read through or shared by them only.
TEST_F(OtherFormsTest, AnEinsumThatWouldCopyIsAProductBetweenTranspositions) {
  const Output x = placeholder("x", random_floats({2, 3, 4, 5}, 1)),
               y = placeholder("y", random_floats({2, 4, 5, 6}, 2));
  const auto einsum = [&](const Output& a, const Output& b, const char* equation) {
    return b_.op("ReverseV2", {b_.op("Einsum", {a, b}, {{"equation", std::string(equation)}}), ints({0})});
  };
  std::vector<Output> values;
  for (const char* equation : {"bijh,bjhd->bihd", "bijh,bjhd->bhdi", "bijh,bjhd->bjdi", "bijh,bjhd->hbdi"})
    values.push_back(einsum(x, y, equation));
  for (const char* equation : {"bjhd,bijh->bihd", "bjhd,bijh->bdhi"})
    values.push_back(einsum(y, x, equation));
  fusion_ = true;
  const auto program = checked(values, false, false);
  EXPECT_EQ(count_ops(*program, "Einsum"), 0);
  EXPECT_EQ(count_ops(*program, "BatchMatMulV2"), 6);
}

/// x[rows, index] as PyTorch's exporter writes it: coordinates side by side, negative ones from the end.
class CoordinatesTest : public OtherFormsTest {
 protected:
  static constexpr std::int64_t kPlaces = 6;

  Output long_numbers(const Shape& shape, const std::vector<std::int64_t>& values) {
    return b_.constant(Tensor::from<std::int64_t>(shape, values));
  }
  /// [kRows, places, 2] of `rows` and of numbers below `nodes`, or from -nodes on.
  Output places(const Output& rows, std::int64_t nodes) {
    Tensor index = Tensor::zeros(DType::Int64, {kRows, kPlaces});
    std::int64_t at = 0;
    for (std::int64_t& i : index.data<std::int64_t>()) i = at++ * 5 % (2 * nodes) - nodes;
    const Output last = b_.constant(long_shape({kRows, kPlaces, 1}), "last"),
                 axis = b_.constant(Tensor::scalar<std::int32_t>(-1));
    const Output repeated = b_.op("BroadcastTo", {rows, b_.constant(long_shape({kRows, kPlaces}))});
    const Output joined = b_.op("ConcatV2", {b_.op("Reshape", {repeated, last}),
                                             b_.op("Reshape", {placeholder("index", index), last}), axis});
    const Output sizes = long_numbers({2}, {kRows, nodes});
    return b_.op("SelectV2", {b_.op("Less", {joined, number(0)}), b_.op("AddV2", {joined, sizes}), joined});
  }
  static Tensor long_shape(const std::vector<std::int64_t>& dims) {
    return Tensor::from<std::int64_t>({std::ssize(dims)}, dims);
  }
  std::shared_ptr<const Program> gathered(const Output& rows, const Shape& x) {
    variables_ = {{"w", random_floats(x, 2)}};
    const Output all = b_.mul(placeholder("x", random_floats(x, 1)), b_.read(b_.variable("w", x, {})));
    const Output picked = b_.op("GatherNd", {all, places(rows, x[1])});
    return checked({b_.reduce_mean(b_.op("Square", {picked}))}, true, false);
  }
};

TEST_F(CoordinatesTest, ThatCountRowsAreGathersWithinThem) {
  const auto program = gathered(long_numbers({kRows, 1}, {0, 1, 2, 3, 4}), {kRows, 4, 3});
  EXPECT_EQ(count_ops(*program, "GatherNd"), 0);
  EXPECT_EQ(count_ops(*program, "ScatterNd"), 0);
  EXPECT_EQ(count_ops(*program, "braid.BatchGather"), 1);
  EXPECT_EQ(count_ops(*program, "braid.BatchGatherGrad"), 1);
}

TEST_F(CoordinatesTest, SoAreThoseOfElements) {
  const auto program = gathered(long_numbers({kRows, 1}, {0, 1, 2, 3, 4}), {kRows, 4});
  EXPECT_EQ(count_ops(*program, "GatherNd"), 0);
  EXPECT_EQ(count_ops(*program, "ScatterNd"), 0);
}

TEST_F(CoordinatesTest, OthersStay) {
  const auto other_order = gathered(long_numbers({kRows, 1}, {0, 1, 3, 2, 4}), {kRows, 4, 3});
  EXPECT_EQ(count_ops(*other_order, "GatherNd"), 1);
  EXPECT_EQ(count_ops(*other_order, "ScatterNd"), 1);
}

TEST_F(CoordinatesTest, OfFewerRowsThanThereAreStay) {
  const auto program = gathered(long_numbers({kRows, 1}, {0, 1, 2, 3, 4}), {kRows + 1, 4, 3});
  EXPECT_EQ(count_ops(*program, "GatherNd"), 1);
}

class SharedFactorTest : public OtherFormsTest {
 protected:
  /// Layers x w + b of all rows of x, with their gradients.
  std::shared_ptr<const Program> trained(const Shape& x, const Shape& w, bool adj_y) {
    variables_ = {{"w", random_floats(w, 2)}, {"v", random_floats(x, 3)}};
    const Output rows = b_.mul(placeholder("x", random_floats(x, 1)), b_.read(b_.variable("v", x, {})));
    const Output y =
        b_.op("BatchMatMulV2", {rows, b_.op("Tanh", {b_.read(b_.variable("w", w, {}))})}, {{"adj_y", adj_y}});
    return checked({b_.reduce_mean(b_.op("Tanh", {y}))}, true, false);
  }
};

TEST_F(SharedFactorTest, OneFactorForAllMatricesIsOneProduct) {
  const auto program = trained({2, 3, 4}, {4, 5}, false);
  EXPECT_EQ(count_ops(*program, "MatMul"), 3);
  EXPECT_EQ(count_ops(*program, "BatchMatMulV2"), 0);
  EXPECT_EQ(count_ops(*program, "braid.ReduceToShapeOf"), 0);
}

TEST_F(SharedFactorTest, AFactorThatIsATranspositionIsReadAsItLies) {
  variables_ = {{"w", random_floats({5, 4}, 2)}};
  const Output w = b_.op("Tanh", {b_.read(b_.variable("w", Shape{5, 4}, {}))});
  const Output x = placeholder("x", random_floats({2, 3, 4}, 1));
  const Output y = b_.op("BatchMatMulV2", {x, b_.op("Transpose", {w, ints({1, 0})})});
  const auto program = checked({b_.reduce_mean(b_.op("Tanh", {y}))}, true, false);
  EXPECT_EQ(count_ops(*program, "MatMul"), 2);
  EXPECT_EQ(count_ops(*program, "Transpose"), 0);
}

TEST_F(SharedFactorTest, SoItIsInMoreAxes) {
  const auto program = trained({2, 2, 3, 4}, {1, 4, 5}, false);
  EXPECT_EQ(count_ops(*program, "MatMul"), 3);
  EXPECT_EQ(count_ops(*program, "BatchMatMulV2"), 0);
}

TEST_F(SharedFactorTest, SoItIsWithATransposedFactor) {
  const auto program = trained({2, 3, 4}, {5, 4}, true);
  EXPECT_EQ(count_ops(*program, "MatMul"), 3);
  EXPECT_EQ(count_ops(*program, "BatchMatMulV2"), 0);
}

TEST_F(SharedFactorTest, HeadsThatShareKeysAreRowsOfOneProduct) {
  const auto program = trained({2, 3, 4, 5}, {2, 1, 5, 6}, false);
  EXPECT_EQ(count_ops(*program, "braid.ReduceToShapeOf"), 0);
  EXPECT_EQ(count_ops(*program, "BatchMatMulV2"), 3);
  for (const ProgramOp& op : program->ops) {
    if (op.op != "BatchMatMulV2") continue;
    EXPECT_EQ(program->graph.node(op.node).outputs[0].shape.rank(), 3);
  }
}

TEST_F(SharedFactorTest, ThoseWhoReadTheSameRowsReadOneReshape) {
  const Output x = placeholder("x", random_floats({2, 3, 4}, 1));
  std::vector<Output> values;
  for (const std::uint64_t seed : {2, 3})
    values.push_back(b_.op("Neg", {b_.op("BatchMatMulV2", {x, b_.constant(random_floats({4, 5}, seed))})}));
  const auto program = checked(values);
  const std::vector<NodeId> nodes = program->graph.topological_order();
  const auto reshapes = std::count_if(
      nodes.begin(), nodes.end(), [&](NodeId id) { return program->graph.node(id).op->name == "Reshape"; });
  EXPECT_EQ(reshapes, 3);  // of x, and of each product
}

TEST_F(SharedFactorTest, BatchesThatDoNotLieInRowsStay) {
  const Output x = placeholder("x", random_floats({2, 3, 4}, 1));
  const Output w = placeholder("w", random_floats({3, 5}, 2)), a = placeholder("a", random_floats({4, 3}, 3));
  const Output own = placeholder("own", random_floats({2, 3, 5}, 4));
  std::vector<Output> values;
  const auto add = [&](const Output& left, const Output& right, bool adj_x) {
    values.push_back(b_.op("Neg", {b_.op("BatchMatMulV2", {left, right}, {{"adj_x", adj_x}})}));
  };
  add(b_.op("Transpose", {x, ints({0, 2, 1})}), w, false);
  add(a, x, false);
  add(x, b_.op("Tanh", {w}), true);
  add(x, own, true);
  const auto program = checked(values, false, false);
  EXPECT_EQ(count_ops(*program, "MatMul"), 0);
  EXPECT_EQ(count_ops(*program, "BatchMatMulV2"), 4);
}

TEST_F(SharedFactorTest, SumsOfOtherAxesStay) {
  std::vector<Output> values;
  for (const std::int32_t axis : {0, 1, 2}) {
    const Output x = placeholder(axis == 0 ? "x0" : axis == 1 ? "x1" : "x2", random_floats({3, 3, 3}, 1));
    const Output product = b_.op("BatchMatMulV2", {x, x}, {{"adj_x", true}});
    values.push_back(b_.op("Neg", {b_.op("Sum", {product, ints({axis})})}));
  }
  const auto program = checked(values, false, false);
  EXPECT_EQ(count_ops(*program, "MatMul"), 1);
  EXPECT_EQ(count_ops(*program, "BatchMatMulV2"), 2);
}

TEST_F(SharedFactorTest, SumsOfWideProductsTransposeNarrowFactors) {
  const auto sum = [&](const char* name, std::int64_t rows, std::int64_t columns, std::int64_t added) {
    const Output x = placeholder((std::string("x") + name).c_str(), random_floats({5, rows, added}, 1));
    const Output y = placeholder((std::string("y") + name).c_str(), random_floats({5, columns, added}, 2));
    const Output product = b_.op("BatchMatMulV2", {x, y}, {{"adj_y", true}});
    return b_.op("Neg", {b_.op("Sum", {product, ints({0})})});
  };
  const auto program = checked({sum("_wide", 8, 7, 2), sum("_narrow", 2, 3, 8)}, false, false);
  EXPECT_EQ(count_ops(*program, "MatMul"), 1);
  EXPECT_EQ(count_ops(*program, "Transpose"), 2);
  EXPECT_EQ(count_ops(*program, "BatchMatMulV2"), 1);
}

TEST_F(OtherFormsTest, OtherTranspositionsAndFetchedProductsStay) {
  const Output x = placeholder("x", random_floats({3, 3, 3}, 1));
  const Output moved = b_.op("Transpose", {x, ints({1, 0, 2})});
  const Output square = placeholder("s", random_floats({3, 3}, 2));
  const Output product = b_.matmul(square, square);
  const auto program =
      checked({b_.op("BatchMatMulV2", {moved, x}), product, b_.op("Transpose", {product, ints({1, 0})})},
              false, false);
  EXPECT_EQ(count_ops(*program, "Transpose"), 2);
}

}  // namespace
}  // namespace braid::testing
