// Values of ops that scatter, segment, partition and find elements, as TensorFlow documents them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/engine/ops/op_runner.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

using Doubles = std::vector<double>;

/// The variable after the op has written it.
Doubles after(const std::string& op, const Tensor& variable, const Tensor& indices, const Tensor& updates) {
  CaseGraph g = make_case_graph(OpRegistry::global().require(op),
                                {.label = {}, .inputs = {variable, indices, updates}, .variables = {0}});
  // The node has no output; running it is what counts.
  Node reader;
  reader.name = "after";
  reader.op = &OpRegistry::global().require("ReadVariableOp");
  reader.attrs = {{"dtype", variable.dtype()}};
  reader.inputs = {g.inputs[0]};
  reader.control_inputs = {g.node};
  const NodeId id = g.graph.add(std::move(reader));
  return to_doubles(evaluate(g.graph, g.execution, {{id, 0}})[0]);
}

TEST(ScatterTest, EachFormOfAVariable) {
  const Tensor v = f32({3, 2}, {1, 2, 3, 4, 5, 6}), rows = axes({2, 0, 2});
  const Tensor u = f32({3, 2}, {10, 1, 2, 2, 4, 5});
  EXPECT_EQ(after("ResourceScatterAdd", v, rows, u), (Doubles{3, 4, 3, 4, 19, 12}));
  EXPECT_EQ(after("ResourceScatterSub", v, rows, u), (Doubles{-1, 0, 3, 4, -9, 0}));
  EXPECT_EQ(after("ResourceScatterMul", v, rows, u), (Doubles{2, 4, 3, 4, 200, 30}));
  EXPECT_EQ(after("ResourceScatterDiv", v, axes({1}), f32({1, 2}, {2, 8})), (Doubles{1, 2, 1.5, 0.5, 5, 6}));
  EXPECT_EQ(after("ResourceScatterMin", v, rows, u), (Doubles{1, 2, 3, 4, 4, 1}));
  EXPECT_EQ(after("ResourceScatterMax", v, rows, u), (Doubles{2, 2, 3, 4, 10, 6}));
  EXPECT_EQ(after("ResourceScatterUpdate", v, rows, u), (Doubles{2, 2, 3, 4, 4, 5}));
  EXPECT_EQ(after("ResourceScatterUpdate", v, axes({1, 0}), f32({}, {9})), (Doubles{9, 9, 9, 9, 5, 6}));
  EXPECT_EQ(message_of([] {
              after("ResourceScatterDiv", axes({6, 8}), axes({1}), axes({0}));
            }),
            "[ResourceScatterDiv] node 'op': integer division by zero");
}

TEST(ScatterTest, SlicesByVectorsOfIndices) {
  const Tensor v = f32({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(after("ResourceScatterNdAdd", v, i32({3, 2}, {0, 1, 1, 0, 0, 1}), f32({3}, {10, 20, 30})),
            (Doubles{1, 42, 23, 4}));
  EXPECT_EQ(after("ResourceScatterNdUpdate", v, i64({1, 1}, {1}), f32({1, 2}, {8, 9})),
            (Doubles{1, 2, 8, 9}));
  EXPECT_EQ(values("TensorScatterUpdate", {axes({1, 2, 3}), i32({2, 1}, {2, 0}), axes({7, 9})}),
            (Doubles{9, 2, 7}));
  EXPECT_EQ(message_of([] {
              run_op("TensorScatterAdd", {axes({1, 2}), i32({1, 1}, {2}), axes({7})});
            }),
            "[TensorScatterAdd] node 'op': indices[0, 0] = 2 is not in [0, 2)");
}

TEST(SegmentTest, EmptySegmentsHaveTheDocumentedValue) {
  const Tensor x = f32({3}, {4, -2, 7}), ids = axes({0, 0, 2});
  EXPECT_EQ(values("SegmentMean", {x, ids}), (Doubles{1, 0, 7}));
  EXPECT_EQ(values("SegmentMax", {x, ids}), (Doubles{4, 0, 7}));
  EXPECT_EQ(values("SegmentMin", {x, ids}), (Doubles{-2, 0, 7}));
  EXPECT_EQ(values("SegmentProd", {x, ids}), (Doubles{-8, 1, 7}));
  EXPECT_EQ(values("UnsortedSegmentMean", {x, axes({1, 1, -1}), i32({}, {2})}), (Doubles{0, 1}));
  const double lowest = std::numeric_limits<float>::lowest();
  EXPECT_EQ(values("UnsortedSegmentMax", {x, axes({1, 1, -1}), i32({}, {2})}), (Doubles{lowest, 4}));
  EXPECT_EQ(values("UnsortedSegmentMin", {x, axes({1, 1, -1}), i32({}, {2})}), (Doubles{-lowest, -2}));
  EXPECT_EQ(values("UnsortedSegmentProd", {x, axes({1, 1, -1}), i32({}, {2})}), (Doubles{1, -8}));
  EXPECT_EQ(message_of([&] {
              run_op("SegmentMean", {x, axes({0, 2, 1})});
            }),
            "[SegmentMean] node 'op': segment_ids must not fall or be negative, [2] is 1");
}

TEST(SparseSegmentTest, SumsTheRowsThatIndicesName) {
  const Tensor x = f32({3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor rows = axes({0, 1, 0, 2}), ids = axes({0, 0, 2, 2});
  EXPECT_EQ(values("SparseSegmentSum", {x, rows, ids}), (Doubles{4, 6, 0, 0, 6, 8}));
  EXPECT_EQ(values("SparseSegmentMean", {x, rows, ids}), (Doubles{2, 3, 0, 0, 3, 4}));
  const Doubles roots = values("SparseSegmentSqrtN", {x, rows, ids});
  EXPECT_NEAR(roots[0], 4 / std::sqrt(2.0), 1e-6);
  EXPECT_EQ(values("SparseSegmentSumWithNumSegments", {x, axes({1}), axes({0}), i32({}, {2})}),
            (Doubles{3, 4, 0, 0}));
  const std::vector<Tensor> seen{f32({1, 2}, {6, 8}), axes({5, 2, 5}), axes({0, 0, 0}), i32({}, {7})};
  EXPECT_EQ(values("SparseSegmentMeanGradV2", seen), (Doubles{2, 8.0F / 3, 4, 16.0F / 3}));
  EXPECT_EQ(values("SparseSegmentMeanGradV2", seen, {}, 1), (Doubles{2, 5}));
  EXPECT_EQ(values("SparseSegmentMeanGrad", {f32({1, 2}, {6, 8}), axes({2, 2}), axes({0, 0}), i32({}, {3})}),
            (Doubles{0, 0, 0, 0, 6, 8}));
  EXPECT_EQ(message_of([&] {
              run_op("SparseSegmentSum", {x, axes({3}), axes({0})});
            }),
            "[SparseSegmentSum] node 'op': indices[0] = 3 is not in [0, 3)");
}

TEST(DynamicPartitionTest, PartsAndBack) {
  const Tensor x = f32({4}, {10, 20, 30, 40}), partitions = axes({1, 0, 1, 0});
  EXPECT_EQ(values("DynamicPartition", {x, partitions}, {{"num_partitions", 2}}, 0), (Doubles{20, 40}));
  EXPECT_EQ(values("DynamicPartition", {x, partitions}, {{"num_partitions", 2}}, 1), (Doubles{10, 30}));
  EXPECT_EQ(message_of([&] {
              run_op("DynamicPartition", {x, axes({0, 0, 3, 0})}, {{"num_partitions", 2}});
            }),
            "[DynamicPartition] node 'op': partition 3 is not in [0, 2)");
}

Doubles stitched(std::vector<Tensor> inputs, std::vector<int> known) {
  return to_doubles(
      run_case(OpRegistry::global().require("DynamicStitch"),
               {.label = {}, .inputs = std::move(inputs), .known_inputs = std::move(known)})[0]);
}

TEST(DynamicStitchTest, TheLastOfEqualIndicesStays) {
  EXPECT_EQ(stitched({axes({2, 0}), axes({2}), f32({2}, {1, 2}), f32({1}, {3})}, {0, 1}), (Doubles{2, 0, 3}));
  EXPECT_EQ(message_of([] {
              stitched({axes({0}), axes({1}), f32({1}, {1}), f32({1, 2}, {3, 4})}, {0, 1});
            }),
            "[DynamicStitch] node 'op': data 1 has slices of shape [2], those before []");
}

TEST(UniqueTest, InTheOrderOfFirstOccurrences) {
  const Tensor x = axes({5, 1, 5, 9, 1, 5});
  const std::vector<Tensor> y = run_op("UniqueWithCounts", {x});
  EXPECT_EQ(to_doubles(y[0]), (Doubles{5, 1, 9}));
  EXPECT_EQ(to_doubles(y[1]), (Doubles{0, 1, 0, 2, 1, 0}));
  EXPECT_EQ(to_doubles(y[2]), (Doubles{3, 2, 1}));
  const float nan = std::nanf("");
  EXPECT_EQ(values("Unique", {f32({4}, {nan, 0, -0.0F, nan})}, {}, 1), (Doubles{0, 1, 1, 2}));
}

TEST(WhereTest, IndicesInRowMajorOrder) {
  EXPECT_EQ(values("Where", {bools({2, 2}, {false, true, true, false})}), (Doubles{0, 1, 1, 0}));
  EXPECT_EQ(run_op("Where", {f32({3}, {0, 0, 0})})[0].shape(), (Shape{0, 1}));
}

TEST(SparseToDenseTest, ValuesAtTheirPlaces) {
  EXPECT_EQ(values("SparseToDense", {i32({2, 2}, {0, 1, 1, 0}), axes({2, 2}), axes({5, 6}), i32({}, {-1})}),
            (Doubles{-1, 5, 6, -1}));
  EXPECT_EQ(message_of([] {
              run_op("SparseToDense", {axes({1, 0}), axes({2}), i32({}, {1}), i32({}, {0})});
            }),
            "[SparseToDense] node 'op': indices[1] is out of order");
  EXPECT_EQ(values("SparseToDense", {axes({1, 0}), axes({2}), i32({}, {1}), i32({}, {0})},
                   {{"validate_indices", false}}),
            (Doubles{1, 1}));
}

TEST(SparseMatMulTest, EqualsTheDenseProduct) {
  const Tensor pairs = i64({3, 2}, {0, 1, 2, 0, 0, 3}), entries = f64({3}, {2, 3, 5}),
               shape = i64({2}, {3, 4});
  const Tensor dense =
      run_op("SparseToDense", {pairs, shape, entries, f64({}, {0})}, {{"validate_indices", false}})[0];
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      const std::int64_t inner = ta ? 3 : 4;
      const Tensor b = random_f64(tb ? Shape{2, inner} : Shape{inner, 2}, 1);
      EXPECT_EQ(values("SparseTensorDenseMatMul", {pairs, entries, shape, b},
                       {{"adjoint_a", ta}, {"adjoint_b", tb}}),
                values("MatMul", {dense, b}, {{"transpose_a", ta}, {"transpose_b", tb}}));
    }
}

TEST(BatchGatherTest, EachBatchHasItsOwnIndices) {
  const Tensor params = axes({10, 11, 12, 20, 21, 22});
  const Tensor matrix = run_op("Reshape", {params, axes({2, 3})})[0];
  EXPECT_EQ(
      values("braid.BatchGather", {matrix, i32({2, 2}, {2, 0, 1, 1}), i32({}, {1})}, {{"batch_dims", 1}}),
      (Doubles{12, 10, 21, 21}));
  EXPECT_EQ(message_of([&] {
              run_op("braid.BatchGather", {matrix, i32({2, 1}, {3, 0}), i32({}, {1})}, {{"batch_dims", 1}});
            }),
            "[braid.BatchGather] node 'op': indices[0] = 3 is not in [0, 3)");
}

TEST(BucketizeTest, ABoundaryBelongsToTheBucketAbove) {
  const std::vector<double> boundaries{0, 10, 100};
  EXPECT_EQ(
      values("Bucketize", {f32({6}, {-5, 0, 9.5F, 10, 150, std::nanf("")})}, {{"boundaries", boundaries}}),
      (Doubles{0, 1, 1, 2, 3, 3}));
  EXPECT_EQ(message_of([] {
              run_op("Bucketize", {f32({1}, {0})}, {{"boundaries", std::vector<double>{2, 1}}});
            }),
            "[Bucketize] node 'op': boundaries must rise, got 2 before 1");
}

TEST(MatrixBandPartTest, KeepsTheBand) {
  const Tensor x = run_op("Reshape", {axes({1, 2, 3, 4, 5, 6, 7, 8, 9}), axes({3, 3})})[0];
  EXPECT_EQ(values("MatrixBandPart", {x, i64({}, {0}), i64({}, {-1})}), (Doubles{1, 2, 3, 0, 5, 6, 0, 0, 9}));
  EXPECT_EQ(values("MatrixBandPart", {x, i64({}, {-1}), i64({}, {0})}), (Doubles{1, 0, 0, 4, 5, 0, 7, 8, 9}));
  EXPECT_EQ(values("MatrixBandPart", {x, i64({}, {1}), i64({}, {0})}), (Doubles{1, 0, 0, 4, 5, 0, 0, 8, 9}));
}

}  // namespace
}  // namespace braid::testing
