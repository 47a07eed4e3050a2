// Sizes that follow from data, bounded: what lookups of sparse ids, partitions and indicators compute is
// compared with sums by hand, on graphs of TensorFlow's form. Every rule has a graph that it is needed for.
#include "worker/model/bounded_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "engine/autodiff/gradients.h"
#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "engine/ir/op.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/interpreter.h"
#include "worker/model/tables.h"
#include "worker/session/graph_session.h"

namespace braid::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::Pointwise;

/// [rows, width] ids, of which `none` is no id, as sparse indices, values and dense shape.
struct Sparse {
  Output indices, values, shape;
};

class BoundedSizes : public ::testing::Test {
 protected:
  Output ints(std::vector<std::int64_t> values) {
    const Shape shape{static_cast<std::int64_t>(values.size())};
    return b.constant(Tensor::from<std::int64_t>(shape, values));
  }
  Output number(std::int64_t value) { return b.constant(Tensor::scalar(value)); }
  Output axis(std::int32_t value) { return b.constant(Tensor::scalar(value)); }

  Sparse from_dense(const Output& dense, std::int64_t none) {
    const Output chosen = b.op("NotEqual", {dense, number(none)});
    const Output indices = b.op("Where", {chosen}, {{"T", DType::Bool}});
    return {indices, b.op("GatherNd", {dense, indices}),
            b.op("Shape", {dense}, {{"out_type", DType::Int64}})};
  }
  Output column_of(const Output& indices) {
    return b.op("StridedSlice", {indices, ints({0, 0}), ints({0, 1}), ints({1, 1})},
                {{"begin_mask", std::int64_t{1}},
                 {"end_mask", std::int64_t{1}},
                 {"shrink_axis_mask", std::int64_t{2}}});
  }
  /// As safe_embedding_lookup_sparse, up to the rows of zeros for those without ids.
  Output bag(Sparse ids, const std::string& how) {
    const Output reshaped = b.op("SparseReshape", {ids.indices, ids.shape, b.op("Identity", {ids.shape})});
    const Output kept =
        b.op("Reshape", {b.op("Where", {b.op("GreaterEqual", {ids.values, number(0)})}), ints({-1})});
    const Output indices = b.op("GatherV2", {reshaped, kept, axis(0)});
    const Output values = b.op("GatherV2", {ids.values, kept, axis(0)});
    const Output filled = b.op("SparseFillEmptyRows", {indices, values, Output{reshaped.node, 1}, number(0)});
    const Output rows = b.op("Cast", {column_of(filled)}, {{"SrcT", DType::Int64}, {"DstT", DType::Int32}});
    const Output unique = b.op("Unique", {Output{filled.node, 1}}, {{"out_idx", DType::Int32}});
    const Output found = b.op("GatherV2", {table(), unique, axis(0)});
    const Output pooled = b.op("SparseSegment" + how, {found, Output{unique.node, 1}, rows});
    const Output empty = b.op("ExpandDims", {Output{filled.node, 2}, axis(1)});
    return b.op("SelectV2", {empty, b.op("ZerosLike", {pooled}), pooled}, {}, "result");
  }
  /// Row i is [i, 10 i].
  Output table() {
    std::vector<float> values;
    for (int i = 0; i < 20; ++i)
      values.insert(values.end(), {static_cast<float>(i), 10.0F * static_cast<float>(i)});
    return b.constant(Tensor::from<float>(Shape{20, 2}, values));
  }

  Graph bounded() {
    Graph graph = import_graph(b.graph());
    bound_sizes(graph);
    remove_unused(graph, {"result", "ids"});
    return graph;
  }
  std::vector<float> run(Shape shape, std::vector<std::int64_t> ids) {
    const Graph graph = bounded();
    for (NodeId id = 0; id < graph.size(); ++id) {
      if (graph.node(id).removed) continue;
      EXPECT_FALSE(unbounded.contains(graph.node(id).op->name)) << graph.node(id).name << " is still there";
    }
    GraphSession session({});
    GraphRun asked{{"result"}, {}};
    asked.feeds.emplace_back("ids", Tensor::from<std::int64_t>(std::move(shape), ids));
    const Tensor result = session.run(graph, asked)[0];
    return {result.data<float>().begin(), result.data<float>().end()};
  }

  const std::set<std::string> unbounded{"Where", "Unique", "SparseFillEmptyRows", "DynamicPartition",
                                        "SparseCross"};
  GraphBuilder b;
  Output ids = b.placeholder("ids", DType::Int64, {-1, 3});
};

TEST_F(BoundedSizes, BagsAreMeansOfTheIdsThatAreThere) {
  bag(from_dense(ids, -1), "Mean");
  EXPECT_THAT(run({3, 3}, {4, -1, 6, -1, -1, -1, 7, 7, 1}), ElementsAre(5, 50, 0, 0, 5, 50));
  EXPECT_THAT(run({1, 3}, {-1, -1, -1}), ElementsAre(0, 0));
}

TEST_F(BoundedSizes, NegativeIdsArePruned) {
  bag(from_dense(ids, -1), "Sum");
  EXPECT_THAT(run({2, 3}, {4, -2, 6, -2, -1, -5}), ElementsAre(10, 100, 0, 0));
}

TEST_F(BoundedSizes, SquareRootsOfCounts) {
  bag(from_dense(ids, 0), "SqrtN");
  const float root = std::sqrt(2.0F);
  EXPECT_THAT(run({2, 3}, {4, 0, 6, 3, 0, 0}), Pointwise(FloatEq(), {10 / root, 100 / root, 3.0F, 30.0F}));
}

TEST_F(BoundedSizes, WeightedSumsAreSegments) {
  const Sparse sparse = from_dense(ids, 0);
  const Output rows = b.op("GatherV2", {table(), sparse.values, axis(0)});
  const Output weights =
      b.op("ExpandDims",
           {b.op("Cast", {sparse.values}, {{"SrcT", DType::Int64}, {"DstT", DType::Float32}}), axis(1)});
  b.op("SegmentSum", {b.op("Mul", {rows, weights}), column_of(sparse.indices)}, {}, "result");
  EXPECT_THAT(run({3, 3}, {2, 0, 3, 0, 0, 0, 1, 0, 0}), ElementsAre(13, 130, 0, 0, 1, 10))
      << "rows without ids are zeros";
}

TEST_F(BoundedSizes, CrossesAreThoseOfTensorFlow) {
  const Sparse first = from_dense(ids, -1);
  const Sparse second = from_dense(b.op("AddV2", {b.op("Mul", {ids, number(2)}), number(1)}), -1);
  const Output dense =
      b.constant(Tensor::from<std::int64_t>(Shape{3, 1}, std::vector<std::int64_t>{10, 20, -30}));
  const AttrMap attrs{{"N", std::int64_t{2}},
                      {"hashed_output", true},
                      {"num_buckets", std::int64_t{1000}},
                      {"hash_key", std::int64_t{0xDECAFCAFFE}}};
  const Output cross = b.op(
      "SparseCross",
      {first.indices, second.indices, first.values, second.values, first.shape, second.shape, dense}, attrs);
  const Output buckets =
      b.op("Cast", {Output{cross.node, 1}}, {{"SrcT", DType::Int64}, {"DstT", DType::Float32}});
  b.op("SegmentSum", {buckets, column_of(cross)}, {}, "result");
  EXPECT_THAT(run({3, 3}, {4, -1, 6, 7, 2, -1, -1, -1, -1}), ElementsAre(1674, 2385, 0));
}

TEST_F(BoundedSizes, IdsWithWeightsBecomeIndicators) {
  const Sparse sparse = from_dense(ids, -1);
  const Output doubled =
      b.op("Cast", {b.op("AddV2", {ids, number(10)})}, {{"SrcT", DType::Int64}, {"DstT", DType::Float32}});
  const Output there =
      b.op("Where", {b.op("NotEqual", {doubled, b.constant(Tensor::scalar(9.0F))})}, {{"T", DType::Bool}});
  const Output weights = b.op("GatherNd", {doubled, there});
  const Output all = b.op(
      "Fill", {b.op("Shape", {weights}, {{"out_type", DType::Int64}}), b.constant(Tensor::scalar(true))});
  const Output is_valid = b.op("LogicalAnd", {b.op("GreaterEqual", {sparse.values, number(0)}), all});
  const auto kept = [&](const Output& value) {  // a Where for each, as sparse_retain has it
    return b.op("GatherV2", {value, b.op("Reshape", {b.op("Where", {is_valid}), ints({-1})}), axis(0)});
  };
  const Output places = b.op("ConcatV2",
                             {b.op("ExpandDims", {column_of(kept(sparse.indices)), axis(1)}),
                              b.op("ExpandDims", {kept(sparse.values), axis(1)}), axis(1)},
                             {{"N", std::int64_t{2}}});
  const Output ordered = b.op("SparseReorder", {places, kept(weights), ints({2, 4})});
  const Output cut =
      b.op("SparseSlice", {ordered, Output{ordered.node, 1}, ints({2, 4}), ints({0, 0}), ints({2, 3})});
  b.op("ScatterNd", {cut, Output{cut.node, 1}, ints({2, 3})}, {}, "result");
  EXPECT_THAT(run({2, 3}, {2, -1, 0, 3, 1, 1}), ElementsAre(10, 0, 12, 0, 22, 0)) << "3 is cut off";
}

/// tf.boolean_mask(rows, mask), where the batch is "ids" and the mask ids > 0.
class MaskedRows : public BoundedSizes {
 protected:
  Output flat() { return b.op("Reshape", {ids, ints({-1})}); }
  Output mask() { return b.op("Greater", {flat(), number(0)}); }
  Output masked(const Output& rows) {
    const Output at = b.op("Squeeze", {b.op("Where", {mask()}, {{"T", DType::Bool}})},
                           {{"squeeze_dims", std::vector<std::int64_t>{1}}});
    return b.op("GatherV2", {rows, at, axis(0)});
  }
  Output as_floats(const Output& value) {
    return b.op("Cast", {value}, {{"SrcT", DType::Int64}, {"DstT", DType::Float32}});
  }
  float run_number(std::vector<std::int64_t> batch) { return run({2, 3}, std::move(batch)).at(0); }
};

TEST_F(MaskedRows, MeansAreThoseOfTheRowsThatCount) {
  b.op("Mean", {masked(as_floats(flat())), ints({0})}, {{"keep_dims", false}}, "result");
  EXPECT_EQ(run_number({4, -7, 6, -1, 0, 2}), 4);
  EXPECT_TRUE(std::isnan(run_number({-4, -7, -6, -1, 0, -2}))) << "as in TensorFlow the mean of none";
}

TEST_F(MaskedRows, ExtremesAndProductsToo) {
  const Output rows = masked(as_floats(flat()));
  const auto reduced = [&](const char* op) { return b.op(op, {rows, ints({0})}, {{"keep_dims", false}}); };
  b.op("AddV2", {b.op("AddV2", {reduced("Max"), reduced("Min")}), reduced("Prod")}, {}, "result");
  EXPECT_EQ(run_number({4, -7, 6, -1, 0, 2}), 6 + 2 + 48);
}

TEST_F(MaskedRows, TheirNumberIsANumber) {
  const Output rows = masked(as_floats(flat()));
  const Output shape = b.op("Shape", {rows}, {{"out_type", DType::Int64}});
  const Output first =
      b.op("StridedSlice", {shape, ints({0}), ints({1}), ints({1})}, {{"shrink_axis_mask", std::int64_t{1}}});
  const Output size = b.op("Size", {rows}, {{"out_type", DType::Int64}});
  b.op("Mul", {as_floats(first), b.op("AddV2", {as_floats(size), b.constant(Tensor::scalar(10.0F))})}, {},
       "result");
  EXPECT_EQ(run_number({4, -7, 6, -1, 0, 2}), 3 * 13);
}

TEST_F(MaskedRows, LossesOfRowsWhoseClassIsNone) {
  const Output logits = b.op(
      "MatMul",
      {b.op("Reshape", {b.op("Mul", {as_floats(flat()), b.constant(Tensor::scalar(0.0F))}), ints({-1, 1})}),
       b.constant(Tensor::from<float>(Shape{1, 4}, std::vector<float>(4, 1)))});
  const Output classes = b.op("Sub", {flat(), number(1)});  // -1 and less for those that do not count
  const Output losses = b.op("SparseSoftmaxCrossEntropyWithLogits", {masked(logits), masked(classes)});
  b.op("Mean", {losses, ints({0})}, {{"keep_dims", false}}, "result");
  EXPECT_NEAR(run_number({4, -7, 3, -1, 0, 2}), std::log(4.0), 1e-6);
}

TEST_F(MaskedRows, NoNanComesOutOfRowsThatDoNotCount) {
  const Output w = b.read(b.variable("w", Shape{}, {}));
  const Output each = b.op("Mul", {as_floats(b.op("Maximum", {flat(), number(0)})), w});
  const Output logs = b.op("Log", {masked(each)});
  b.op("Sum", {logs, ints({0})}, {{"keep_dims", false}}, "loss");
  Graph graph = import_graph(b.graph());
  EXPECT_TRUE(bound_sizes(graph).empty());
  const auto gradients = add_gradients(graph, graph.parse_value("loss"));
  ASSERT_EQ(gradients.size(), 1U);
  testing::Interpreter interpreter(graph);
  interpreter.variables().emplace("w", Tensor::scalar(2.0F));
  const Tensor ids = Tensor::from<std::int64_t>(Shape{2, 3}, std::vector<std::int64_t>{4, -7, 6, -1, 0, 2});
  const Tensor found = interpreter.run({{"ids", ids}}, {graph.value_name(gradients[0].dense)})[0];
  EXPECT_EQ(found.data<float>()[0], 1.5F) << "three rows, each with 1 / w";
}

TEST_F(MaskedRows, SegmentsOfRowsHaveThoseThatCount) {
  const Output rows = masked(as_floats(flat()));
  const Output row_of = masked(ints({0, 0, 0, 1, 1, 1}));
  const auto reduced = [&](const char* op) { return b.op(op, {rows, row_of, number(3)}); };
  const Output ones =
      b.op("Fill", {b.op("Shape", {rows}, {{"out_type", DType::Int64}}), b.constant(Tensor::scalar(1.0F))});
  const Output counts = b.op("UnsortedSegmentSum", {ones, row_of, number(3)});
  const Output some =
      b.op("ConcatV2", {reduced("UnsortedSegmentSum"), reduced("UnsortedSegmentProd"), counts, axis(0)});
  b.op("Identity", {some}, {}, "result");
  EXPECT_THAT(run({2, 3}, {4, -7, 6, -1, 0, 2}), ElementsAre(10, 2, 0, 24, 2, 1, 2, 1, 0));
}

TEST_F(MaskedRows, ExtremesOfSegmentsToo) {
  const Output rows = masked(as_floats(flat()));
  const Output row_of = masked(ints({0, 0, 0, 1, 1, 1}));
  b.op("Sub",
       {b.op("UnsortedSegmentMax", {rows, row_of, number(2)}),
        b.op("UnsortedSegmentMin", {rows, row_of, number(2)})},
       {}, "result");
  EXPECT_THAT(run({2, 3}, {4, -7, 6, -1, 0, 2}), ElementsAre(2, 0));
}

TEST_F(MaskedRows, WhatHasNoRuleIsNamed) {
  const Output rows = masked(as_floats(flat()));
  b.op("Cumsum", {rows, axis(0)}, {}, "result");
  Graph graph = import_graph(b.graph());
  const std::vector<NodeId> left = bound_sizes(graph);
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(graph.node(left[0]).name, "result");
}

TEST_F(BoundedSizes, IndicatorsComeBackToTheirPlaces) {
  const Sparse sparse = from_dense(ids, 0);
  const Output dense = b.op("SparseToDense", {sparse.indices, sparse.shape, sparse.values, number(-7)});
  b.op("Cast", {dense}, {{"SrcT", DType::Int64}, {"DstT", DType::Float32}}, "result");
  EXPECT_THAT(run({2, 3}, {2, 0, 3, 0, 5, 0}), ElementsAre(2, -7, 3, -7, 5, -7));
}

TEST_F(BoundedSizes, PartsOfATableAreStitched) {
  const Output flat = b.op("Reshape", {ids, ints({-1})});
  const Output part =
      b.op("Cast", {b.op("FloorMod", {flat, number(2)})}, {{"SrcT", DType::Int64}, {"DstT", DType::Int32}});
  const Output row = b.op("FloorDiv", {flat, number(2)});
  const Output places = b.op("Range", {axis(0), b.op("Size", {flat}), axis(1)});
  const Output rows = b.op("DynamicPartition", {row, part}, {{"num_partitions", std::int64_t{2}}});
  const Output at = b.op("DynamicPartition", {places, part}, {{"num_partitions", std::int64_t{2}}});
  const Output even = b.op("GatherV2", {table(), rows, axis(0)});
  const Output odd = b.op("Neg", {b.op("GatherV2", {table(), Output{rows.node, 1}, axis(0)})});
  b.op("ParallelDynamicStitch", {at, Output{at.node, 1}, even, odd}, {{"N", std::int64_t{2}}}, "result");
  EXPECT_THAT(run({1, 3}, {4, 7, 0}), ElementsAre(2, 20, -3, -30, 0, 0));
}

TEST_F(BoundedSizes, CountsOfNumbersInARow) {
  const Output none = b.constant(Tensor::zeros(DType::Float32, Shape{0}));
  b.op("DenseBincount", {ids, number(4), none}, {{"binary_output", false}}, "result");
  EXPECT_THAT(run({2, 3}, {1, 1, 3, 0, 2, 3}), ElementsAre(0, 2, 0, 1, 1, 0, 1, 1));
}

TEST_F(BoundedSizes, ASizeBetweenTwoEqualLimitsIsKnown) {
  const Output none = b.constant(Tensor::zeros(DType::Float32, Shape{0}));
  const Output most = b.op("AddV2", {b.op("Max", {ids, ints({0, 1})}), number(1)});
  const Output size = b.op("Minimum", {number(4), b.op("Maximum", {number(4), most})});
  b.op("DenseBincount", {ids, size, none}, {{"binary_output", true}}, "result");
  EXPECT_THAT(run({2, 3}, {1, 1, 3, 0, 2, 3}), ElementsAre(0, 1, 0, 1, 1, 0, 1, 1));
}

TEST_F(BoundedSizes, AllOfWhatIsThereCounts) {
  const Sparse sparse = from_dense(ids, -1);
  const Output good = b.op("All", {b.op("Less", {sparse.values, number(5)}), ints({0})});
  b.op("Cast", {good}, {{"SrcT", DType::Bool}, {"DstT", DType::Float32}}, "result");
  EXPECT_THAT(run({1, 3}, {4, -1, -1}), ElementsAre(1));
  EXPECT_THAT(run({1, 3}, {4, -1, 5}), ElementsAre(0));
}

/// What TensorFlow's gradient of a mean of rows gives an optimizer: rows and where they belong.
TEST_F(BoundedSizes, RowsOfAGradientAreZerosWhereThereIsNoId) {
  const Sparse sparse = from_dense(ids, 0);
  const Output rows =
      b.op("Cast", {column_of(sparse.indices)}, {{"SrcT", DType::Int64}, {"DstT", DType::Int32}});
  const Output unique = b.op("Unique", {sparse.values}, {{"out_idx", DType::Int32}});
  const Output places{unique.node, 1};
  const Output upstream = b.constant(Tensor::from<float>(Shape{2, 2}, std::vector<float>{6, 60, 8, 80}));
  const Output gradient = b.op("SparseSegmentMeanGrad", {upstream, places, rows, b.op("Size", {unique})});
  const Output none = b.constant(Tensor::from<std::int64_t>(Shape{1}, std::vector<std::int64_t>{19}));
  const Output zeros = b.constant(Tensor::zeros(DType::Float32, Shape{1, 2}));
  b.op("ConcatV2", {gradient, zeros, axis(0)}, {{"N", std::int64_t{2}}}, "values");
  b.op("NoOp", {}, {}, "updates");  // a root without a value
  b.op("ConcatV2", {unique, none, axis(0)}, {{"N", std::int64_t{2}}}, "indices");
  Graph graph = import_graph(b.graph());
  bound_sizes(graph, {"values", "indices", "updates"});
  remove_unused(graph, {"values", "indices", "ids"});
  GraphSession session({});
  GraphRun asked{{"values", "indices"}, {}};
  asked.feeds.emplace_back(
      "ids", Tensor::from<std::int64_t>(Shape{2, 3}, std::vector<std::int64_t>{4, 0, 6, 6, 0, 0}));
  const std::vector<Tensor> found = session.run(graph, asked);
  std::map<std::int64_t, std::pair<float, float>> sums;
  for (std::size_t i = 0; i < 7; ++i) {
    auto& [first, second] = sums[found[1].data<std::int64_t>()[i]];
    first += found[0].data<float>()[2 * i];
    second += found[0].data<float>()[2 * i + 1];
  }
  using Sums = std::map<std::int64_t, std::pair<float, float>>;
  EXPECT_EQ(sums, (Sums{{4, {3, 30}}, {6, {11, 110}}, {19, {0, 0}}})) << "row 0 is none that the batch names";
}

TEST_F(BoundedSizes, WhatHasNoRuleStaysAsItIs) {
  const Sparse sparse = from_dense(ids, 0);
  b.op("Cast", {b.op("Cumsum", {sparse.values, axis(0)})}, {{"SrcT", DType::Int64}, {"DstT", DType::Float32}},
       "result");
  const Graph graph = bounded();
  EXPECT_NE(graph.find("Where"), kNoNode);
}

/// A row that the batch does not name must not learn: optimizers with state would move it.
TEST_F(BoundedSizes, PlacesWithoutIdsReadARowThatTheBatchNames) {
  const Sparse sparse = from_dense(ids, 0);
  const Output found = b.op("GatherV2", {table(), sparse.values, axis(0)});
  b.op("SegmentSum", {found, column_of(sparse.indices)}, {}, "result");
  const Graph graph = bounded();
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed || node.op->name != "GatherV2" || graph.info(node.inputs[0]).shape != Shape({20, 2}))
      continue;
    GraphSession session({});
    GraphRun asked{{graph.value_name(node.inputs[1])}, {}};
    asked.feeds.emplace_back(
        "ids", Tensor::from<std::int64_t>(Shape{2, 3}, std::vector<std::int64_t>{0, 9, 0, 0, 4, 0}));
    const Tensor read = session.run(graph, asked)[0];
    EXPECT_THAT(std::vector<std::int64_t>(read.data<std::int64_t>().begin(), read.data<std::int64_t>().end()),
                ElementsAre(9, 9, 9, 9, 4, 9));
    return;
  }
  FAIL() << "there is no gather of the table";
}

}  // namespace
}  // namespace braid::worker
