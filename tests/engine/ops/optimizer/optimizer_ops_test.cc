// Braid's own optimizer ops against base/optim: dense and by rows, bags, parts of wider rows, factors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/optim.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "tests/engine/ops/optimizer/updates.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

class OptimizerOps : public ::testing::TestWithParam<OptimizerSpec> {
 protected:
  /// A variable and its slots, larger than a block.
  static std::vector<Tensor> state(const Shape& shape) {
    std::vector<Tensor> tensors{drawn_f32(shape, 1)};
    for (const SlotSpec& slot : optimizer_slots(GetParam())) {
      Tensor t(DType::Float32, shape);
      std::ranges::fill(t.data<float>(), slot.initial_value);
      tensors.push_back(t);
    }
    return tensors;
  }
  static void apply(const UpdateParams& params, std::vector<Tensor>& state, std::int64_t first,
                    std::int64_t n, std::span<const float> gradient) {
    std::vector<float*> slots;
    for (std::size_t s = 1; s < state.size(); ++s) slots.push_back(state[s].data<float>().data() + first);
    apply_update(GetParam(), params,
                 state[0].data<float>().subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(n)),
                 gradient, slots);
  }
};

TEST_P(OptimizerOps, DenseUpdatesAreThoseOfBaseOptim) {
  const StepParams params{.step = 3, .learning_rate = 0.05F, .grad_scale = 0.5F};
  std::vector<Tensor> inputs = state({200, 301});
  const Tensor gradient = drawn_f32({200, 301}, 2);
  std::vector<Tensor> expected;
  for (const Tensor& t : inputs) expected.push_back(t.clone());
  apply({0.05F, 0.5F, 3}, expected, 0, gradient.elements(), gradient.data<float>());
  const int variables = static_cast<int>(inputs.size());
  inputs.push_back(gradient);
  for (int width : {1, 2, 3}) {
    const auto actual =
        update("braid.ApplyOptimizer", inputs, variables, optimizer_attrs(GetParam()), params, width);
    for (std::size_t i = 0; i < expected.size(); ++i) expect_same(actual[i], expected[i]);
  }
}

TEST_P(OptimizerOps, SparseUpdatesSumDuplicatesInOrderAndTouchEachRowOnce) {
  constexpr std::int64_t kRows = 50, kWidth = 700, kIndices = 300;
  const StepParams params{.step = 7, .learning_rate = 0.05F, .grad_scale = 2.0F};
  std::vector<Tensor> inputs = state({kRows, kWidth});
  const Tensor indices = random_i64({kIndices}, 3, 0, 40);
  const Tensor values = drawn_f32({kIndices, kWidth}, 4);
  std::vector<Tensor> expected;
  for (const Tensor& t : inputs) expected.push_back(t.clone());
  for (std::int64_t row = 0; row < kRows; ++row) {
    std::vector<float> sum;
    for (std::int64_t k = 0; k < kIndices; ++k) {
      if (indices.data<std::int64_t>()[static_cast<std::size_t>(k)] != row) continue;
      const float* g = values.data<float>().data() + k * kWidth;
      if (sum.empty())
        sum.assign(g, g + kWidth);
      else
        for (std::int64_t i = 0; i < kWidth; ++i) sum[static_cast<std::size_t>(i)] += g[i];
    }
    if (!sum.empty()) apply({0.05F, 2.0F, 7}, expected, row * kWidth, kWidth, sum);
  }
  const int variables = static_cast<int>(inputs.size());
  inputs.push_back(indices);
  inputs.push_back(values);
  for (int width : {1, 2, 3}) {
    const auto actual =
        update("braid.SparseApplyOptimizer", inputs, variables, optimizer_attrs(GetParam()), params, width);
    for (std::size_t i = 0; i < expected.size(); ++i) expect_same(actual[i], expected[i]);
  }
}

/// An update whose values are those of bags has the bits of one by the rows of single ids.
void expect_bags_as_rows(const OptimizerSpec& spec, bool said, bool weighted) {
  constexpr std::int64_t kRows = 30, kWidth = 520, kBags = 40, kHot = 5, kIds = kBags * kHot;
  std::vector<Tensor> state{drawn_f32({kRows, kWidth}, 1)};
  for (const SlotSpec& slot : optimizer_slots(spec)) {
    Tensor t(DType::Float32, spec.row_wise ? Shape{kRows} : Shape{kRows, kWidth});
    std::ranges::fill(t.data<float>(), slot.initial_value);
    state.push_back(t);
  }
  const Tensor ids = random_i64({kIds}, 3, 0, kRows), sums = drawn_f32({kBags, kWidth}, 4),
               weights = drawn_f32({kIds}, 5);
  Tensor bags(DType::Int32, Shape{kIds}), rows(DType::Float32, Shape{kIds, kWidth});
  for (std::int64_t k = 0; k < kIds; ++k) {
    bags.data<std::int32_t>()[static_cast<std::size_t>(k)] = static_cast<std::int32_t>(k / kHot);
    for (std::int64_t i = 0; i < kWidth; ++i)
      rows.data<float>()[static_cast<std::size_t>(k * kWidth + i)] =
          sums.data<float>()[static_cast<std::size_t>(k / kHot * kWidth + i)] *
          (weighted ? weights.data<float>()[static_cast<std::size_t>(k)] : 1.0F);
  }
  AttrMap attrs = optimizer_attrs(spec);
  std::vector<Tensor> by_rows = state, by_bags = state;
  by_rows.insert(by_rows.end(), {ids, rows});
  by_bags.insert(by_bags.end(), {ids, sums});
  if (said) by_bags.push_back(bags);
  if (weighted) by_bags.push_back(weights);
  const int variables = static_cast<int>(state.size());
  const auto expected = update("braid.SparseApplyOptimizer", by_rows, variables, attrs, kAnyStep);
  attrs.set(said ? "has_bags" : "hots", said ? Attr(true) : Attr(std::vector<std::int64_t>{kHot}));
  attrs.set("weighted", weighted);
  for (int width : {1, 3}) {
    const auto actual = update("braid.SparseApplyOptimizer", by_bags, variables, attrs, kAnyStep, width);
    for (std::size_t i = 0; i < expected.size(); ++i) expect_same(actual[i], expected[i]);
  }
}

TEST_P(OptimizerOps, BagsHaveTheBitsOfTheirRows) {
  for (const bool said : {false, true})
    for (const bool weighted : {false, true}) expect_bags_as_rows(GetParam(), said, weighted);
}

TEST(OptimizerOpsTest, BagsHaveTheBitsOfTheirRowsInRowWiseAdagrad) {
  const OptimizerSpec spec{
      .kind = OptimizerKind::Adagrad, .initial_accumulator = 0, .adagrad_epsilon = 1e-8F, .row_wise = true};
  for (const bool said : {false, true})
    for (const bool weighted : {false, true}) expect_bags_as_rows(spec, said, weighted);
}

TEST(OptimizerOpsTest, BagsThatDoNotFitAreRefused) {
  const Tensor table = drawn_f32({4, 2}, 1), ids = i64({4}, {0, 1, 2, 3}), sums = drawn_f32({3, 2}, 2);
  AttrMap attrs = optimizer_attrs({});
  attrs.set("hots", std::vector<std::int64_t>{2});
  EXPECT_THAT(update_refusal("braid.SparseApplyOptimizer", {table, ids, sums}, 1, attrs),
              ::testing::HasSubstr("values of shape [3, 2] are no rows of shape [4, 2] for 2 indices"));
  attrs.set("hots", std::vector<std::int64_t>{3});
  EXPECT_THAT(update_refusal("braid.SparseApplyOptimizer", {table, ids, sums}, 1, attrs),
              ::testing::HasSubstr("4 indices are no bags of 3"));
  attrs = optimizer_attrs({});
  attrs.set("has_bags", true);
  EXPECT_THAT(
      update_refusal("braid.SparseApplyOptimizer", {table, ids, sums, i32({4}, {0, 1, 3, 2})}, 1, attrs),
      ::testing::HasSubstr("bags[2] = 3 is not in [0, 3)"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerOps,
                         ::testing::Values(OptimizerSpec{.kind = OptimizerKind::Sgd, .weight_decay = 0.01F},
                                           OptimizerSpec{.kind = OptimizerKind::Momentum, .nesterov = true},
                                           OptimizerSpec{.kind = OptimizerKind::Adagrad},
                                           OptimizerSpec{.kind = OptimizerKind::Adam},
                                           OptimizerSpec{.kind = OptimizerKind::Ftrl, .l1 = 0.1F, .l2 = 0.2F},
                                           OptimizerSpec{.kind = OptimizerKind::RmsProp,
                                                         .centered = true,
                                                         .l1 = 0.1F,
                                                         .clip_value = 0.5F,
                                                         .learning_rate_factor = 0.5F}),
                         [](const auto& info) { return std::string(optimizer_name(info.param.kind)); });

TEST(WiderRowsTest, GradientsInThemHaveTheBitsOfTheirOwn) {
  for (const bool row_wise : {false, true}) {
    const OptimizerSpec spec{
        .kind = OptimizerKind::Adagrad, .initial_accumulator = 0.5F, .row_wise = row_wise};
    AttrMap own = optimizer_attrs(spec), part = own;
    part.set("value_offsets", std::vector<std::int64_t>{3});
    const Tensor w = drawn_f32({9, 4}, 1), slot = drawn_f32(row_wise ? Shape{9} : Shape{9, 4}, 5, 0.5),
                 indices = i64({5}, {7, 1, 2, 7, 1}), values = drawn_f32({5, 4}, 2);
    Tensor wide = drawn_f32({5, 9}, 3);
    for (std::size_t r = 0; r < 5; ++r)
      std::ranges::copy(values.data<float>().subspan(r * 4, 4),
                        wide.data<float>().subspan(r * 9 + 3).begin());
    const auto expected = update("braid.SparseApplyOptimizer", {w, slot, indices, values}, 2, own, kAnyStep);
    const auto actual = update("braid.SparseApplyOptimizer", {w, slot, indices, wide}, 2, part, kAnyStep);
    for (std::size_t i = 0; i < expected.size(); ++i) expect_same(actual[i], expected[i]);
  }
}

TEST(WiderRowsTest, ThatAreTooNarrowAreRefused) {
  AttrMap attrs = optimizer_attrs({});
  const auto said = [&](std::vector<std::int64_t> offsets, const Shape& values) {
    attrs.set("value_offsets", std::move(offsets));
    return update_refusal("braid.SparseApplyOptimizer",
                          {drawn_f32({9, 4}, 1), i64({2}, {7, 1}), drawn_f32(values, 3)}, 1, attrs);
  };
  EXPECT_EQ(said({2}, {2, 6}), "nothing was thrown");
  EXPECT_THAT(said({3}, {2, 6}),
              ::testing::HasSubstr("values of shape [2, 6] have no 2 rows of 4 from column 3 on"));
  EXPECT_THAT(said({2}, {3, 6}), ::testing::HasSubstr("have no 2 rows of 4 from column 2 on"));
  EXPECT_THAT(said({2, 2}, {2, 6}), ::testing::HasSubstr("value_offsets: expected 1 numbers"));
}

TEST(UpdateFactorTest, MultipliesTheGradient) {
  for (const OptimizerSpec& spec :
       {OptimizerSpec{.kind = OptimizerKind::Adam, .weight_decay = 0.1F, .clip_value = 0.02F},
        OptimizerSpec{.kind = OptimizerKind::Adagrad, .initial_accumulator = 0.5F}}) {
    AttrMap plain = optimizer_attrs(spec), scaled = plain;
    scaled.set("has_factor", true);
    std::vector<Tensor> state{drawn_f32({9, 4}, 1)};
    while (state.size() <= optimizer_slots(spec).size()) state.push_back(drawn_f32({9, 4}, 5, 0.5));
    const int variables = static_cast<int>(state.size());
    Tensor values = drawn_f32({6, 4}, 2), quarters = values.clone();
    for (float& x : quarters.data<float>()) x /= 4;  // exact
    const auto after = [&](const AttrMap& attrs, const Tensor& gradient, std::vector<Tensor> factor) {
      std::vector<Tensor> inputs = state;
      inputs.push_back(i64({6}, {7, 1, 2, 7, 1, 7}));
      inputs.push_back(gradient);
      inputs.insert(inputs.end(), factor.begin(), factor.end());
      return update("braid.SparseApplyOptimizer", inputs, variables, attrs, kAnyStep);
    };
    const auto expected = after(plain, quarters, {}), actual = after(scaled, values, {f32({}, {0.25F})});
    const auto unscaled = after(plain, values, {});
    for (std::size_t i = 0; i < expected.size(); ++i) expect_same(actual[i], expected[i]);
    EXPECT_NE(to_doubles(unscaled[1]), to_doubles(expected[1]));
  }
}

TEST(UpdateFactorTest, IsOneNumber) {
  AttrMap attrs = optimizer_attrs({});
  attrs.set("has_factor", true);
  const Tensor w = drawn_f32({3}, 1), g = drawn_f32({3}, 2);
  EXPECT_THAT(update_refusal("braid.ApplyOptimizer", {w, g}, 1, attrs),
              ::testing::HasSubstr("takes 3 inputs, got 2"));
  EXPECT_THAT(update_refusal("braid.ApplyOptimizer", {w, g, g}, 1, attrs), ::testing::HasSubstr("rank 0"));
}

TEST(SparseUpdateTest, NegativeIndicesNameNoRowWhereTheyAreToBeSkipped) {
  const Tensor weights = f32({3, 1}, {1, 2, 3}), indices = i64({4}, {-1, 2, -1, 2});
  const Tensor gradients = f32({4, 1}, {100, 1, 100, 2});
  AttrMap attrs = optimizer_attrs({.kind = OptimizerKind::Sgd});
  EXPECT_NE(message_of([&] {
              update("braid.SparseApplyOptimizer", {weights, indices, gradients}, 1, attrs, kAnyStep, 1);
            }).find("indices[0] = -1 is not in [0, 3)"),
            std::string::npos);
  attrs.set("skip_negative", true);
  const auto padded =
      update("braid.SparseApplyOptimizer", {weights, indices, gradients}, 1, attrs, kAnyStep, 1);
  const auto plain = update("braid.SparseApplyOptimizer", {weights, i64({2}, {2, 2}), f32({2, 1}, {1, 2})}, 1,
                            optimizer_attrs({.kind = OptimizerKind::Sgd}), kAnyStep, 1);
  ASSERT_EQ(padded.size(), plain.size());
  for (std::size_t v = 0; v < padded.size(); ++v) expect_same(padded[v], plain[v]);
  EXPECT_NE(to_doubles(padded[0])[2], 3);
}

TEST(OptimizerAttrsTest, AreReadBackAsTheyWereWritten) {
  const OptimizerSpec spec{OptimizerKind::Adam,
                           0.8F,
                           true,
                           true,
                           0.85F,
                           0.995F,
                           1e-3F,
                           0.2F,
                           0.01F,
                           0.7F,
                           true,
                           -0.6F,
                           0.3F,
                           0.1F,
                           0.2F,
                           0.75F,
                           0.5F};
  EXPECT_EQ(optimizer_spec(optimizer_attrs(spec)), spec);
  EXPECT_THROW(optimizer_spec({{"kind", "NEWTON"}}), InvalidArgument);
}

}  // namespace
}  // namespace braid::testing
