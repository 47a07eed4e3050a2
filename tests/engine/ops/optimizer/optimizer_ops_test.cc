// Optimizer and variable-writing ops against base/optim and the definitions: duplicates, order, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/init.h"
#include "base/optim.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "engine/ops/state/variable_init.h"
#include "tests/engine/ops/op_runner.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

Tensor drawn_f32(Shape shape, std::uint64_t seed, double low = -1) {
  return converted(random_f64(std::move(shape), seed, low, 1.5), DType::Float32);
}

constexpr StepParams kAnyStep{.step = 3, .learning_rate = 0.05F, .grad_scale = 0.5F};

/// Runs an update; the variables' values afterwards.
std::vector<Tensor> update(const std::string& op, std::vector<Tensor> inputs, std::vector<int> variables,
                           AttrMap attrs, const StepParams& params, int pool_width = 1) {
  return run_update(op,
                    {.label = op,
                     .inputs = std::move(inputs),
                     .attrs = std::move(attrs),
                     .variables = std::move(variables)},
                    params, pool_width);
}

/// The same where the first inputs are the variables.
std::vector<Tensor> update(const std::string& op, std::vector<Tensor> inputs, int variables, AttrMap attrs,
                           const StepParams& params, int pool_width = 1) {
  std::vector<int> first(static_cast<std::size_t>(variables));
  std::iota(first.begin(), first.end(), 0);
  return update(op, std::move(inputs), std::move(first), std::move(attrs), params, pool_width);
}

void expect_same(const Tensor& actual, const Tensor& expected) {
  ASSERT_EQ(actual.shape(), expected.shape());
  const auto a = actual.data<float>(), e = expected.data<float>();
  for (std::size_t k = 0; k < a.size(); ++k) ASSERT_EQ(a[k], e[k]) << "element " << k;
}

std::string update_refusal(const std::string& op, std::vector<Tensor> inputs, int variables,
                           AttrMap attrs = {}) {
  return message_of([&] { update(op, std::move(inputs), variables, std::move(attrs), {}); });
}

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

/// One variable of one element and its slots before and after an update of TensorFlow's ops.
std::vector<float> one_update(const std::string& op, std::vector<float> state, std::vector<float> rest) {
  std::vector<Tensor> inputs;
  for (const float value : state) inputs.push_back(f32({1}, {value}));
  const auto variables = static_cast<int>(inputs.size());
  const bool gradient_first = op.find("Ftrl") != std::string::npos;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    const bool is_gradient = i == (gradient_first ? 0 : rest.size() - 1);
    inputs.push_back(is_gradient ? f32({1}, {rest[i]}) : f32({}, {rest[i]}));
  }
  std::vector<float> after;
  for (const Tensor& t : update(op, std::move(inputs), variables, {}, {}))
    after.push_back(t.data<float>()[0]);
  return after;
}

void expect_near(const std::vector<float>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-6) << "value " << i;
}

TEST(AdaptiveOptimizers, FollowTheDocumentedFormulas) {
  const double w = 0.5, g = 0.3, lr = 0.1, rho = 0.9, mu = 0.8, eps = 1e-3;
  const double ms = 0.4 * rho + 0.1 * g * g, mom = mu * 0.2 + lr * g / std::sqrt(ms + eps);
  expect_near(one_update("ResourceApplyRMSProp", {0.5F, 0.4F, 0.2F}, {0.1F, 0.9F, 0.8F, 1e-3F, 0.3F}),
              {w - mom, ms, mom});
  const double mg = 0.1 * rho + 0.1 * g, centred = mu * 0.2 + lr * g / std::sqrt(ms - mg * mg + eps);
  expect_near(
      one_update("ResourceApplyCenteredRMSProp", {0.5F, 0.1F, 0.4F, 0.2F}, {0.1F, 0.9F, 0.8F, 1e-3F, 0.3F}),
      {w - centred, mg, ms, centred});
  const double a = rho * 0.4 + 0.1 * g * g, step = std::sqrt(0.2 + eps) / std::sqrt(a + eps) * g;
  expect_near(one_update("ResourceApplyAdadelta", {0.5F, 0.4F, 0.2F}, {0.1F, 0.9F, 1e-3F, 0.3F}),
              {w - lr * step, a, rho * 0.2 + 0.1 * step * step});
}

TEST(AdaptiveOptimizers, VariantsOfAdamAndSignsFollowTheDocumentedFormulas) {
  const double w = 0.5, g = 0.3, lr = 0.1, b1 = 0.9, b2 = 0.8, p1 = 0.81, p2 = 0.64, eps = 1e-3;
  const double m = b1 * 0.4 + (1 - b1) * g;
  expect_near(one_update("ResourceApplyAdaMax", {0.5F, 0.4F, 0.2F}, {0.81F, 0.1F, 0.9F, 0.8F, 1e-3F, 0.3F}),
              {w - lr / (1 - p1) * m / (g + eps), m, g});
  const double v = b2 * 0.2 + (1 - b2) * g * g, rate = lr * std::sqrt(1 - p2) / (1 - p1);
  for (const double largest : {0.01, 0.7})
    expect_near(one_update("ResourceApplyAdamWithAmsgrad", {0.5F, 0.4F, 0.2F, static_cast<float>(largest)},
                           {0.81F, 0.64F, 0.1F, 0.9F, 0.8F, 1e-3F, 0.3F}),
                {w - rate * m / (std::sqrt(std::max(v, largest)) + eps), m, v, std::max(v, largest)});
  for (const double sign : {1.0, -1.0}) {
    const auto slot = static_cast<float>(sign * 0.4);
    const double mean = b1 * sign * 0.4 + (1 - b1) * g;
    expect_near(one_update("ResourceApplyAddSign", {0.5F, slot}, {0.1F, 2, 0.5F, 0.9F, 0.3F}),
                {w - lr * (2 + 0.5 * sign) * g, mean});
    expect_near(one_update("ResourceApplyPowerSign", {0.5F, slot}, {0.1F, 2, 0.5F, 0.9F, 0.3F}),
                {w - lr * std::exp(2 * 0.5 * sign) * g, mean});
  }
}

TEST(AdaptiveOptimizers, ProximalStepsShrinkTowardsZero) {
  const double w = -0.5, g = 0.3, lr = 0.1, l1 = 0.2, l2 = 0.4;
  const double next = w - lr * g;
  expect_near(one_update("ResourceApplyProximalGradientDescent", {-0.5F}, {0.1F, 0.2F, 0.4F, 0.3F}),
              {-(std::abs(next) - lr * l1) / (1 + lr * l2)});
  expect_near(one_update("ResourceApplyProximalGradientDescent", {-0.5F}, {0.1F, 0, 0.4F, 0.3F}),
              {next / (1 + lr * l2)});
  expect_near(one_update("ResourceApplyProximalGradientDescent", {-0.5F}, {0.1F, 9, 0.4F, 0.3F}), {0});
  const double a = 0.4 + g * g, rate = lr / std::sqrt(a);
  expect_near(one_update("ResourceApplyProximalAdagrad", {-0.5F, 0.4F}, {0.1F, 0.2F, 0.4F, 0.3F}),
              {-(std::abs(w - rate * g) - rate * l1) / (1 + rate * l2), a});
}

TEST(AdaptiveOptimizers, FtrlShrinksSmallWeightsToZero) {
  const double w = 0.5, g = 0.3, lr = 0.1, l1 = 0.01, l2 = 0.02, shrinkage = 0.05;
  const double n = 0.4 + g * g, sigma = (std::sqrt(n) - std::sqrt(0.4)) / lr;
  const double z = 0.2 + g - sigma * w;
  expect_near(one_update("ResourceApplyFtrl", {0.5F, 0.4F, 0.2F}, {0.3F, 0.1F, 0.01F, 0.02F, -0.5F}),
              {(std::copysign(l1, z) - z) / (std::sqrt(n) / lr + 2 * l2), n, z});
  expect_near(one_update("ResourceApplyFtrl", {0.5F, 0.4F, 0.2F}, {0.3F, 0.1F, 9.0F, 0.02F, -0.5F}),
              {0, n, z});
  const double z2 = z + 2 * shrinkage * w;
  expect_near(one_update("ResourceApplyFtrlV2", {0.5F, 0.4F, 0.2F}, {0.3F, 0.1F, 0.01F, 0.02F, 0.05F, -0.5F}),
              {(std::copysign(l1, z2) - z2) / (std::sqrt(n) / lr + 2 * l2), n, z2});
}

TEST(AdaptiveOptimizers, SparseFormsUpdateARowForEachOccurrence) {
  const Tensor w = f32({3, 1}, {1, 2, 3}), a = f32({3, 1}, {1, 1, 1}), z = f32({3, 1}, {0, 0, 0});
  const auto row = [](float value) { return f32({}, {value}); };
  const auto after = update(
      "ResourceSparseApplyFtrl",
      {w, a, z, f32({2, 1}, {0.5F, 0.25F}), axes({2, 2}), row(0.1F), row(0), row(0), row(-0.5F)}, 3, {}, {});
  const auto once = one_update("ResourceApplyFtrl", {3, 1, 0}, {0.5F, 0.1F, 0, 0, -0.5F});
  const auto twice = one_update("ResourceApplyFtrl", once, {0.25F, 0.1F, 0, 0, -0.5F});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(after[i].data<float>()[2], twice[i]);
  EXPECT_EQ(after[0].data<float>()[0], 1);
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

TEST(ResourceApplyTest, SparseAdagradUpdatesOncePerOccurrence) {
  const Tensor w = f32({2, 1}, {1, 1}), a = f32({2, 1}, {0, 0});
  const auto after = update("ResourceSparseApplyAdagrad",
                            {w, a, f32({}, {1}), f32({2, 1}, {3, 4}), axes({1, 1})}, 2, {}, {});
  const float first = 1 - 3 / std::sqrt(9.0F);
  expect_same(after[0], f32({2, 1}, {1, first - 4 / std::sqrt(25.0F)}));
  expect_same(after[1], f32({2, 1}, {0, 25}));
}

TEST(ResourceApplyTest, AdamTakesItsPowersFromItsInputs) {
  const Tensor zero = f32({1}, {0});
  // beta1^3 and beta2^3 for betas 0.5 and 0.25.
  const auto after =
      update("ResourceApplyAdam",
             {f32({1}, {1}), zero, zero, f32({}, {0.125F}), f32({}, {0.015625F}), f32({}, {0.1F}),
              f32({}, {0.5F}), f32({}, {0.25F}), f32({}, {1e-3F}), f32({1}, {2})},
             3, {}, {});
  const double m = 0.5 * 2, v = 0.75 * 4, rate = 0.1 * std::sqrt(1 - 0.015625) / (1 - 0.125);
  EXPECT_FLOAT_EQ(after[0].data<float>()[0], static_cast<float>(1 - rate * m / (std::sqrt(v) + 1e-3)));
  EXPECT_FLOAT_EQ(after[1].data<float>()[0], 1);
  EXPECT_FLOAT_EQ(after[2].data<float>()[0], 3);
}

TEST(ResourceApplyTest, NesterovAdamLooksOneGradientAhead) {
  const auto scalar = [](float value) { return f32({}, {value}); };
  const auto after = update("ResourceApplyAdam",
                            {f32({1}, {1}), f32({1}, {0.5F}), f32({1}, {2}), scalar(0.125F), scalar(0.25F),
                             scalar(0.1F), scalar(0.5F), scalar(0.25F), scalar(1e-3F), f32({1}, {3})},
                            3, {{"use_nesterov", true}}, {});
  const double m = 0.5 * 0.5 + 0.5 * 3, v = 0.25 * 2 + 0.75 * 9, rate = 0.1 * std::sqrt(0.75) / 0.875;
  EXPECT_FLOAT_EQ(after[0].data<float>()[0],
                  static_cast<float>(1 - rate * (0.5 * m + 0.5 * 3) / (std::sqrt(v) + 1e-3)));
}

/// Every optimizer op, dense and sparse, on variables of `stored` against the same update in float32.
void expect_updates_as_of_float32(DType stored, double tolerance) {
  const DType computed = stored == DType::Float64 ? DType::Float64 : DType::Float32;
  const auto cast = [](const Tensor& t, DType to) {
    return t.dtype() == to || !is_floating(t.dtype()) ? t : run_op("Cast", {t}, {{"DstT", to}})[0];
  };
  const OpCaseTable& table = all_op_cases();
  int compared = 0;
  for (const auto& [op, cases] : table.all())
    for (const OpCase& c : cases) {
      if (op.find("Apply") == std::string::npos || !op.starts_with("Resource")) continue;
      if (c.inputs[0].dtype() != DType::Float32) continue;
      const auto variables = static_cast<int>(c.variables.size());
      std::vector<Tensor> wide, typed;
      for (std::size_t i = 0; i < c.inputs.size(); ++i) {
        const bool is_variable = i < c.variables.size();
        typed.push_back(cast(c.inputs[i], is_variable ? stored : computed));
        wide.push_back(cast(typed.back(), DType::Float32));
      }
      const auto expected = update(op, wide, variables, c.attrs, {});
      const auto actual = update(op, typed, variables, c.attrs, {});
      for (std::size_t v = 0; v < expected.size(); ++v) {
        const auto e = to_doubles(expected[v]), a = to_doubles(cast(actual[v], DType::Float32));
        for (std::size_t i = 0; i < e.size(); ++i)
          ASSERT_NEAR(a[i], e[i], tolerance * (1 + std::abs(e[i]))) << op << ", " << c.label << ", " << i;
      }
      ++compared;
    }
  EXPECT_GT(compared, 20);
}

TEST(ResourceApplyTest, HalfVariablesAreAddedToInFloat32) {
  const auto half = [](const Tensor& t) { return run_op("Cast", {t}, {{"DstT", DType::Float16}})[0]; };
  const auto wide = [](const Tensor& t) {
    return to_doubles(run_op("Cast", {t}, {{"DstT", DType::Float32}})[0]);
  };
  const Tensor w = half(f32({3, 1}, {1, 2, 3}));
  const Tensor two = f32({2, 1}, {0.5F, 0.25F});
  // 2049 is no float16: the sum of both is rounded twice, each time to even.
  EXPECT_EQ(wide(update("ResourceScatterAdd", {w, axes({2, 2}), two}, 1, {}, {})[0]),
            (std::vector<double>{1, 2, 3.75}));
  EXPECT_EQ(wide(update("ResourceScatterAdd", {half(f32({1}, {2048})), axes({0, 0}), f32({2}, {1, 1})}, 1, {},
                        {})[0]),
            (std::vector<double>{2048}));
  EXPECT_EQ(wide(update("ResourceScatterNdSub", {w, i32({1, 1}, {1}), f32({1, 1}, {0.5F})}, 1, {}, {})[0]),
            (std::vector<double>{1, 1.5, 3}));
  EXPECT_EQ(wide(update("AssignAddVariableOp", {w, f32({3, 1}, {0.5F, 1, 1})}, 1, {}, {})[0]),
            (std::vector<double>{1.5, 3, 4}));
}

TEST(ResourceApplyTest, Float64VariablesFollowTheSameFormulas) {
  expect_updates_as_of_float32(DType::Float64, 1e-5);
}

TEST(ResourceApplyTest, HalfVariablesAreUpdatedInFloat32AndRounded) {
  expect_updates_as_of_float32(DType::Float16, 2e-3);
  expect_updates_as_of_float32(DType::BFloat16, 2e-2);
}

TEST(ResourceApplyTest, TypesThatDoNotFitAreRefused) {
  const Tensor w = run_op("Cast", {f32({1}, {1})}, {{"DstT", DType::Float64}})[0];
  EXPECT_THAT(update_refusal("ResourceApplyGradientDescent", {w, f32({}, {1}), f32({1}, {1})}, 1),
              ::testing::HasSubstr("the variable holds float64, the gradient is float32"));
}

TEST(ResourceApplyTest, KerasMomentumKeepsTheScaledStepInItsSlot) {
  const auto after =
      update("ResourceApplyKerasMomentum",
             {f32({1}, {1}), f32({1}, {0.5F}), f32({}, {0.1F}), f32({1}, {2}), f32({}, {0.5F})}, 2,
             {{"use_nesterov", true}}, {});
  EXPECT_FLOAT_EQ(after[1].data<float>()[0], 0.05F);
  EXPECT_FLOAT_EQ(after[0].data<float>()[0], 1 + 0.5F * 0.05F - 0.2F);
}

TEST(ResourceScatterAddTest, CountsEveryDuplicate) {
  const auto after =
      update("ResourceScatterAdd", {i64({3}, {10, 20, 30}), axes({2, 0, 2}), i64({3}, {1, 2, 4})}, 1, {}, {});
  EXPECT_EQ(to_doubles(after[0]), (std::vector<double>{12, 20, 35}));
}

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

Node handle_node(AttrMap attrs) {
  Node node;
  node.name = "layer/kernel";
  node.op = &OpRegistry::global().require("VarHandleOp");
  node.attrs = std::move(attrs);
  return node;
}

TEST(VariableInitTest, DependsOnSeedAndNameOnly) {
  const AttrMap attrs{{"_init_kind", static_cast<int>(InitKind::Normal)}, {"_init_a", 1.0}, {"_init_b", 0.5}};
  Tensor a(DType::Float32, Shape{4, 5});
  initialize_variable(handle_node(attrs), 42, a);
  std::vector<float> expected(20);
  fill_initial({InitKind::Normal, 1.0F, 0.5F}, make_rng_key(42, "layer/kernel"), 0, expected);
  EXPECT_TRUE(std::ranges::equal(a.data<float>(), expected));

  AttrMap shared = attrs;
  shared.set("shared_name", "other");
  Tensor b(DType::Float32, Shape{4, 5});
  initialize_variable(handle_node(shared), 42, b);
  EXPECT_FALSE(std::ranges::equal(b.data<float>(), expected));
}

TEST(VariableInitTest, OtherTypesTakeZerosOrAConstant) {
  Tensor steps = i64({2}, {5, 6});
  initialize_variable(handle_node({}), 1, steps);
  EXPECT_EQ(to_doubles(steps), (std::vector<double>{0, 0}));
  initialize_variable(handle_node({{"_init_kind", 1}, {"_init_a", 3.0}}), 1, steps);
  EXPECT_EQ(to_doubles(steps), (std::vector<double>{3, 3}));
  EXPECT_THROW(initialize_variable(handle_node({{"_init_kind", 3}}), 1, steps), InvalidArgument);
  EXPECT_THROW(initialize_variable(handle_node({{"_init_kind", 9}}), 1, steps), InvalidArgument);
}

TEST(VariableInitTest, IntegersAreUniformBelowTheBound) {
  Tensor ids(DType::Int64, Shape{1000});
  initialize_variable(handle_node({{"_init_kind", 2}, {"_init_a", 2.0}, {"_init_b", 5.0}}), 1, ids);
  const auto values = ids.data<std::int64_t>();
  EXPECT_EQ(std::set<std::int64_t>(values.begin(), values.end()), (std::set<std::int64_t>{2, 3, 4}));
}

}  // namespace
}  // namespace braid::testing
