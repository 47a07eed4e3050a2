// braid.QueryAttention and its gradient are braid.RaggedAttention's at the last value of each row, where no
// other query has a gradient; and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

using ::testing::HasSubstr;

struct Shapes {
  std::vector<std::int64_t> offsets{0};
  std::int64_t values = 0, heads = 1, qk = 1, v = 1;
  std::int64_t rows() const { return std::ssize(offsets) - 1; }
};

Shapes random_shapes(std::mt19937_64& random) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  Shapes s;
  s.heads = 1 + below(3);
  s.qk = 1 + below(40);
  s.v = 1 + below(40);
  for (std::int64_t rows = below(6); rows > 0; --rows)
    s.offsets.push_back(s.offsets.back() + (below(4) == 0 ? below(2) : below(60)));
  s.values = s.offsets.back() + below(4);
  return s;
}

/// Rows of the last values, zeros of rows without any; or back, into `values` rows.
Tensor at_last(const Tensor& x, const Shapes& s, bool back) {
  const std::int64_t row = s.heads * x.shape()[2];
  Tensor made = Tensor::zeros(DType::Float64, Shape{back ? s.values : s.rows(), s.heads, x.shape()[2]});
  for (std::int64_t b = 0; b < s.rows(); ++b) {
    const std::int64_t end = s.offsets[static_cast<std::size_t>(b) + 1];
    if (end == s.offsets[static_cast<std::size_t>(b)]) continue;
    const double* const from = x.data<double>().data() + (back ? b : end - 1) * row;
    std::copy(from, from + row, made.data<double>().data() + (back ? end - 1 : b) * row);
  }
  return made;
}

void expect_alike(const Tensor& expected, const Tensor& got, const char* what) {
  ASSERT_EQ(expected.shape(), got.shape()) << what;
  for (std::size_t i = 0; i < expected.data<double>().size(); ++i)
    ASSERT_NEAR(expected.data<double>()[i], got.data<double>()[i], 1e-12) << what << ", element " << i;
}

TEST(QueryAttentionTest, IsRaggedAttentionAtTheLastValue) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200 && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("shape " + std::to_string(i));
    const Shapes s = random_shapes(random);
    const bool softmax = i % 2 == 0;
    const AttrMap attrs{{"activation", softmax ? "softmax" : "silu"}, {"scale", i % 3 == 0 ? 0.3 : 0.0}};
    const Tensor q = random_f64({s.values, s.heads, s.qk}, random()),
                 k = random_f64({s.values, s.heads, s.qk}, random()),
                 v = random_f64({s.values, s.heads, s.v}, random()),
                 d = random_f64({s.rows(), s.heads, s.v}, random());
    const Tensor offsets = Tensor::from<std::int64_t>(Shape{std::ssize(s.offsets)}, s.offsets);
    const std::vector<Tensor> all = run_op("braid.RaggedAttention", {q, k, v, offsets}, attrs);
    const std::vector<Tensor> one =
        run_op("braid.QueryAttention", {at_last(q, s, false), k, v, offsets}, attrs);
    expect_alike(at_last(all[0], s, false), one[0], "output");
    std::vector<Tensor> of_all{q, k, v, at_last(d, s, true), offsets},
        of_one{at_last(q, s, false), k, v, d, offsets};
    if (softmax) {
      of_all.insert(of_all.end(), all.begin(), all.end());
      of_one.insert(of_one.end(), one.begin(), one.end());
    }
    const std::vector<Tensor> expected = run_op("braid.RaggedAttentionGrad", of_all, attrs);
    const std::vector<Tensor> got = run_op("braid.QueryAttentionGrad", of_one, attrs);
    expect_alike(at_last(expected[0], s, false), got[0], "dq");
    expect_alike(expected[1], got[1], "dk");
    expect_alike(expected[2], got[2], "dv");
  }
}

TEST(QueryAttentionTest, SaysWhatIsWrong) {
  const Tensor q = random_f64({2, 2, 3}, 1), k = random_f64({5, 2, 3}, 2), v = random_f64({5, 2, 4}, 3);
  const Tensor offsets = i64({3}, {0, 2, 5});
  const char* const op = "braid.QueryAttention";
  EXPECT_EQ(refusal(op, {q, k, v, offsets}), "nothing was thrown");
  EXPECT_THAT(refusal(op, {k, k, v, offsets}), HasSubstr("rows of offsets and queries"));
  EXPECT_THAT(refusal(op, {random_f64({2, 2, 4}, 1), k, v, offsets}), HasSubstr("widths of heads"));
  EXPECT_THAT(refusal(op, {random_f64({2, 1, 3}, 1), k, v, offsets}), HasSubstr("numbers of heads"));
  EXPECT_THAT(refusal(op, {q, k, random_f64({4, 2, 4}, 3), offsets}), HasSubstr("numbers of values"));
  EXPECT_THAT(refusal(op, {q, k, v, i64({3}, {0, 3, 2})}), HasSubstr("falls"));
  EXPECT_THAT(refusal(op, {q, k, v, i64({3}, {0, 3, 6})}), HasSubstr("above the 5 values"));
  EXPECT_THAT(refusal(op, {q, k, v, offsets}, {{"max_length", 2}}), HasSubstr("more than max_length 2"));
  EXPECT_THAT(refusal(op, {q, k, v, offsets}, {{"scale", -1.0}}), HasSubstr("scale"));
}

}  // namespace
}  // namespace braid::testing
