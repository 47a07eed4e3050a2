// Updates of rows that a node of their own has grouped (braid.GroupRows, braid.SparseApplyGrouped).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/ops/optimizer/optimizer_attrs.h"
#include "tests/engine/ops/optimizer/updates.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

/// What an update by indices does to its variables when the rows are grouped by a node of their own.
std::vector<Tensor> grouped_update(const OpCase& c, int pool_width) {
  const std::size_t handles = optimizer_slots(optimizer_spec(c.attrs)).size() + 1;
  // Behind the values there may be the indices' bags and weights.
  const std::size_t further =
      (c.attrs.get("has_bags", false) ? 1 : 0) + (c.attrs.get("weighted", false) ? 1 : 0);
  std::vector<Tensor> inputs, indices;
  std::vector<int> variables;
  std::vector<std::int64_t> rows;
  const bool has_factor = c.attrs.get("has_factor", false);
  for (std::size_t i = 0; i + (has_factor ? 1 : 0) < c.inputs.size(); i += handles + 2 + further) {
    for (std::size_t h = 0; h < handles; ++h) {
      variables.push_back(static_cast<int>(inputs.size()));
      inputs.push_back(c.inputs[i + h]);
    }
    rows.push_back(c.inputs[i].shape()[0]);
    indices.push_back(c.inputs[i + handles]);
    for (std::size_t g = 0; g <= further; ++g) inputs.push_back(c.inputs[i + handles + 1 + g]);
  }
  inputs.push_back(run_op("braid.GroupRows", indices, {{"rows", rows}})[0]);
  if (has_factor) inputs.push_back(c.inputs.back());
  return update("braid.SparseApplyGrouped", std::move(inputs), variables, c.attrs, kAnyStep, pool_width);
}

TEST(GroupedUpdateTest, GivesTheBitsOfTheUpdateByIndices) {
  int compared = 0;
  for (const char* op : {"braid.SparseApplyOptimizer", "braid.SparseApplyOptimizerMany"})
    for (const OpCase& c : all_op_cases().of(op)) {
      SCOPED_TRACE(c.label);
      if (c.attrs.get("skip_negative", false)) continue;  // such updates are not taken apart
      const auto expected = update(op, c.inputs, c.variables, c.attrs, kAnyStep, 2);
      const auto actual = grouped_update(c, 3);
      ASSERT_EQ(actual.size(), expected.size());
      for (std::size_t v = 0; v < expected.size(); ++v) expect_same(actual[v], expected[v]);
      ++compared;
    }
  EXPECT_GT(compared, 15);
}

TEST(GroupedUpdateTest, RefusesEntriesThatDoNotFitTheValues) {
  const Tensor table = drawn_f32({4, 2}, 1), values = drawn_f32({3, 2}, 2);
  const AttrMap sgd{{"kind", "SGD"}};
  EXPECT_THAT(update_refusal("braid.SparseApplyGrouped", {table, values, i64({2}, {0, 1})}, 1, sgd),
              ::testing::HasSubstr("3 rows of values, but 2 entries"));
  EXPECT_THAT(update_refusal("braid.SparseApplyGrouped", {table, values}, 1, sgd),
              ::testing::HasSubstr("SGD takes 2 inputs for each variable and the entries, got 2"));
  EXPECT_THAT(
      update_refusal("braid.SparseApplyGrouped", {table, drawn_f32({2, 3}, 2), i64({2}, {0, 1})}, 1, sgd),
      ::testing::HasSubstr("values of shape [2, 3] are no rows of shape [4, 2]"));
}

TEST(GroupRowsTest, EntriesAreInTheOrderOfTablesRowsAndPositions) {
  const Tensor entries = run_op("braid.GroupRows", {axes({2, 0, 2}), i64({2}, {1, 0})},
                                {{"rows", std::vector<std::int64_t>{3, 2}}})[0];
  // Rows of the second table begin behind the three of the first and one more.
  EXPECT_EQ(tensor_to_int64s(entries),
            (std::vector<std::int64_t>{(0L << 32) + 1, (2L << 32) + 0, (2L << 32) + 2, (4L << 32) + 4,
                                       (5L << 32) + 3}));
}

TEST(GroupRowsTest, RefusesWhatIsNoIndexOfATable) {
  const auto refusal = [](std::vector<Tensor> indices, std::vector<std::int64_t> rows) {
    return message_of([&] { run_op("braid.GroupRows", std::move(indices), {{"rows", std::move(rows)}}); });
  };
  EXPECT_EQ(refusal({axes({1}), i64({2}, {0, 4})}, {2, 4}),
            "[braid.GroupRows] node 'op': indices[1] = 4 is not in [0, 4)");
  EXPECT_EQ(refusal({axes({0, -1})}, {2}), "[braid.GroupRows] node 'op': indices[1] = -1 is not in [0, 2)");
  EXPECT_EQ(refusal({axes({0})}, {0}), "[braid.GroupRows] node 'op': indices[0] = 0 is not in [0, 0)");
  EXPECT_THAT(refusal({axes({0})}, {1, 2}), ::testing::HasSubstr("rows: expected those of 1 tables, got 2"));
}

}  // namespace
}  // namespace braid::testing
