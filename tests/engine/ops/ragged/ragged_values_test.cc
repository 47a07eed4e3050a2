// Ops that move ragged values: their values, and what they refuse. Their gradients are in the walk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RaggedConcatTest, PutsRowsBehindRows) {
  const auto both = run_op("braid.RaggedConcat", {i64({5}, {1, 2, 3, 9, 9}), i64({3}, {7, 8, 6}),
                                                  i32({4}, {0, 2, 2, 3}), i64({4}, {0, 0, 1, 3})});
  EXPECT_THAT(to_doubles(both[0]), ElementsAre(1, 2, 7, 3, 8, 6, 0, 0));
  EXPECT_THAT(tensor_to_int64s(both[1]), ElementsAre(0, 2, 3, 6));
  EXPECT_EQ(both[1].dtype(), DType::Int64);
}

TEST(RaggedConcatTest, ReadsAWidthInThePlaceOfOffsets) {
  const Tensor history = i64({4}, {5, 6, 7, 0}), offsets = i64({3}, {0, 2, 3});
  const auto before =
      run_op("braid.RaggedConcat", {i64({4}, {1, 2, 3, 4}), history, offsets}, {{"a_width", 2}});
  EXPECT_THAT(to_doubles(before[0]), ElementsAre(1, 2, 5, 6, 3, 4, 7, 0));
  EXPECT_THAT(tensor_to_int64s(before[1]), ElementsAre(0, 4, 7));
  const auto behind = run_op("braid.RaggedConcat", {history, i64({2}, {1, 2}), offsets},
                             {{"b_width", 1}, {"repeat_last", true}});
  EXPECT_THAT(to_doubles(behind[0]), ElementsAre(5, 6, 1, 7, 2, 2));
}

TEST(RaggedConcatTest, SplitTakesItApartOnRandomShapes) {
  std::mt19937_64 random(3);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  for (int i = 0; i < 300; ++i) {
    const std::int64_t batch = below(7);
    std::vector<std::int64_t> a{0}, b{0};
    for (std::int64_t r = 0; r < batch; ++r) {
      a.push_back(a.back() + (below(3) == 0 ? 0 : below(40)));
      b.push_back(b.back() + below(3));
    }
    const Tensor x = random_f64({a.back() + below(4), 3}, random()),
                 y = random_f64({b.back() + below(4), 3}, random());
    const Tensor x_offsets = Tensor::from<std::int64_t>(Shape{batch + 1}, a);
    const Tensor y_offsets = Tensor::from<std::int64_t>(Shape{batch + 1}, b);
    const auto both = run_op("braid.RaggedConcat", {x, y, x_offsets, y_offsets});
    const auto parts = run_op("braid.RaggedSplit", {both[0], x, y, x_offsets, y_offsets});
    const auto expect_used = [](const Tensor& part, const Tensor& whole, std::int64_t used) {
      auto expected = to_doubles(whole);
      std::fill(expected.begin() + used * 3, expected.end(), 0);
      ASSERT_EQ(to_doubles(part), expected);
    };
    expect_used(parts[0], x, a.back());
    expect_used(parts[1], y, b.back());
    const auto dense = run_op("braid.RaggedToDense", {x, x_offsets}, {{"max_length", 40}});
    expect_used(run_op("braid.DenseToRagged", {dense[0], x_offsets, x})[0], x, a.back());
  }
}

TEST(RaggedConcatTest, RefusesWhatDoesNotGoTogether) {
  const Tensor a = random_f64({4, 2}, 1), b = random_f64({3, 2}, 2), offsets = i64({3}, {0, 1, 4});
  const auto refused = [&](std::vector<Tensor> inputs, AttrMap attrs = {}) {
    return refusal("braid.RaggedConcat", std::move(inputs), std::move(attrs));
  };
  EXPECT_THAT(refused({a, b, offsets, i64({4}, {0, 1, 2, 3})}), HasSubstr("2 and 3 rows of the batch"));
  EXPECT_THAT(refused({a, b, offsets, i64({3}, {0, 2, 4})}), HasSubstr("offsets[2] = 4"));
  EXPECT_THAT(refused({a, b, offsets}, {{"b_width", 2}}), HasSubstr("b has 3 values, which is no multiple"));
  EXPECT_THAT(refused({a, b, offsets}, {{"a_width", 2}, {"b_width", 1}}), HasSubstr("both set"));
  EXPECT_THAT(refused({a, random_f64({3, 5}, 2), offsets, offsets}), HasSubstr("one shape"));
  EXPECT_THAT(refusal("braid.RaggedSplit", {b, a, b, offsets, i64({3}, {0, 1, 2})}),
              HasSubstr("a and b have 6 values, the input has room for 3"));
  EXPECT_THAT(refusal("braid.RaggedToDense", {a, offsets}), HasSubstr("max_length must be positive"));
  EXPECT_THAT(refusal("braid.SameOffsets", {offsets, i32({3}, {0, 2, 4})}),
              HasSubstr("row 0 of the batch has 1 values and 2"));
}

TEST(RaggedPositionsTest, CountFromTheFrontOrTheEnd) {
  const Tensor offsets = i64({4}, {0, 4, 4, 7}), like = random_f64({8, 1}, 1);
  EXPECT_THAT(values("braid.RaggedPositions", {offsets, like}), ElementsAre(0, 1, 2, 3, 0, 1, 2, 0));
  EXPECT_THAT(values("braid.RaggedPositions", {offsets, like}, {{"from_end", true}, {"prefix", 2}}),
              ElementsAre(0, 1, 3, 2, 0, 1, 2, 0));
  EXPECT_THAT(values("braid.RaggedPositions", {offsets, like}, {{"from_end", true}, {"limit", 3}}),
              ElementsAre(2, 2, 1, 0, 2, 1, 0, 0));
}

}  // namespace
}  // namespace braid::testing
