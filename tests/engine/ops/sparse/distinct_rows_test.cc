// braid.DistinctRows and braid.SumRuns: each row of a batch once, and the sums of what belongs to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/ops/common/row_entries.h"
#include "tests/engine/ops/op_cases.h"
#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

using ::testing::HasSubstr;
using Sizes = std::vector<std::int64_t>;

TEST(DistinctRowsOpTest, ListsEachRowOnceAndSaysWhereItIs) {
  const std::vector<Tensor> made =
      run_op("braid.DistinctRows", {axes({4, 0, 4}), i64({2, 2}, {2, 2, 0, 2})}, {{"rows", Sizes{5, 3}}});
  ASSERT_EQ(made.size(), 5U);
  EXPECT_EQ(to_doubles(made[0]), (std::vector<double>{0, 4, -1}));
  EXPECT_EQ(to_doubles(made[1]), (std::vector<double>{0, 2, -1, -1}));
  EXPECT_EQ(to_doubles(made[2]), (std::vector<double>{1, 0, 1}));
  EXPECT_EQ(made[3].shape(), (Shape{2, 2}));
  EXPECT_EQ(to_doubles(made[3]), (std::vector<double>{1, 1, 0, 1}));
  // Places of the second list begin behind the three of the first and one more.
  EXPECT_EQ(tensor_to_int64s(made[4]), (Sizes{(0L << 32) + 1, (1L << 32) + 0, (1L << 32) + 2, (4L << 32) + 5,
                                              (5L << 32) + 3, (5L << 32) + 4, (5L << 32) + 6}));
}

TEST(DistinctRowsOpTest, RefusesWhatIsNoRowOfATable) {
  EXPECT_EQ(refusal("braid.DistinctRows", {axes({1}), axes({0, 4})}, {{"rows", Sizes{2, 4}}}),
            "[braid.DistinctRows] node 'op': indices[1] = 4 is not in [0, 4)");
  EXPECT_THAT(refusal("braid.DistinctRows", {axes({0})}, {{"rows", Sizes{1, 2}}}),
              HasSubstr("rows: expected those of 1 tables, got 2"));
}

TEST(SumRunsTest, SumsWhatBelongsToAPlace) {
  const Tensor entries =
      run_op("braid.DistinctRows", {axes({4, 0, 4}), axes({1, 1})}, {{"rows", Sizes{5, 2}}}).back();
  const std::vector<Tensor> sums =
      run_op("braid.SumRuns", {f32({2, 2}, {1, 2, 10, 20}), f32({3, 1}, {1, 2, 4}), entries},
             {{kRunSizes, Sizes{3, 2}}, {kRunLists, Sizes{1, 0}}});
  EXPECT_EQ(to_doubles(sums[0]), (std::vector<double>{11, 22, 0, 0}));
  EXPECT_EQ(to_doubles(sums[1]), (std::vector<double>{2, 5, 0}));
}

TEST(SumRunsTest, RefusesListsThatDoNotFit) {
  const Tensor entries = i64({3}, {0, 1, 2});
  const auto of = [&](const Tensor& values, const Sizes& sizes, const Sizes& lists) {
    return refusal("braid.SumRuns", {values, entries}, {{kRunSizes, sizes}, {kRunLists, lists}});
  };
  EXPECT_THAT(of(f32({2, 1}, {1, 2}), {3}, {0}), HasSubstr("values [2, 1] are not 3 rows"));
  EXPECT_THAT(of(f32({3, 1}, {1, 2, 3}), {3}, {1}), HasSubstr("list 1 of 1"));
  EXPECT_THAT(of(f32({3, 1}, {1, 2, 3}), {3}, {0, 0}), HasSubstr("a list for each of the values is needed"));
  EXPECT_THAT(of(f32({2, 1}, {1, 2}), {2}, {0}), HasSubstr("an entry for each value is needed"));
}

}  // namespace
}  // namespace braid::testing
