// Ops that read, write or sum rows name the node, the index and the bound that it is beyond alike.
#include <gtest/gtest.h>

#include "tests/engine/ops/optimizer/updates.h"

namespace braid::testing {
namespace {

TEST(IndexErrorTest, NamesNodeIndexAndBound) {
  const Tensor table = drawn_f32({10, 2}, 1), rows = drawn_f32({2, 2}, 2);
  const std::string text = "indices[1] = 10 is not in [0, 10)";
  EXPECT_EQ(update_refusal("ResourceGather", {table, axes({3, 10})}, 1, {{"dtype", DType::Float32}}),
            "[ResourceGather] node 'op': " + text);
  EXPECT_EQ(update_refusal("ResourceScatterAdd", {table, axes({3, 10}), rows}, 1),
            "[ResourceScatterAdd] node 'op': " + text);
  EXPECT_EQ(update_refusal("braid.SparseApplyOptimizer", {table, axes({3, 10}), rows}, 1, {{"kind", "SGD"}}),
            "[braid.SparseApplyOptimizer] node 'op': " + text);
  EXPECT_EQ(update_refusal("GatherV2", {table, axes({-1}), i32({}, {0})}, 0),
            "[GatherV2] node 'op': indices[0] = -1 is not in [0, 10)");
  EXPECT_EQ(update_refusal("GatherNd", {table, i32({1, 2}, {9, 2})}, 0),
            "[GatherNd] node 'op': indices[0, 1] = 2 is not in [0, 2)");
  EXPECT_EQ(update_refusal("UnsortedSegmentSum", {rows, axes({0, 3}), i32({}, {3})}, 0),
            "[UnsortedSegmentSum] node 'op': segment_ids[1] = 3 is not below 3");
}

}  // namespace
}  // namespace braid::testing
