#include <limits>

#include "tests/engine/ops/op_cases.h"
#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

struct ShapedAttention {
  const char* label;
  Shape q, k, v;
  std::vector<Tensor> mask = {};  // none, or one
  AttrMap attrs = {};
};

Tensor some_seen(Shape shape, std::uint64_t seed) {
  return converted(random_i64(shape, seed, 0, 2), DType::Bool);
}

/// What the gradient takes behind queries, keys and values: its own, the output, sums, the mask.
std::vector<Tensor> gradient_inputs(const std::vector<Tensor>& inputs, const AttrMap& attrs) {
  const std::vector<Tensor> made = run_op("braid.Attention", inputs, attrs);
  std::vector<Tensor> all(inputs.begin(), inputs.begin() + 3);
  all.insert(all.end(), {random_f64(made[0].shape(), 4), made[0], made[1]});
  all.insert(all.end(), inputs.begin() + 3, inputs.end());
  return all;
}

/// Queries, keys and values that are parts of one product's rows, [batch, 5, 3 x 2 heads of 8], or of rows
/// that come before the batch; gradients that lie so as well, or side by side.
void add_parts(OpCaseTable& table) {
  using Ints = std::vector<std::int64_t>;
  constexpr std::int64_t kBatch = 3, kRows = 5, kHeads = 2, kWidth = 8, kAll = 3 * kHeads * kWidth;
  const Ints shape{kBatch, kRows, kHeads, kWidth};
  for (const bool rows_first : {false, true}) {
    const Shape whole = rows_first ? Shape{kRows, kBatch, kAll} : Shape{kBatch, kRows, 3, kHeads, kWidth};
    AttrMap attrs{{"heads_inside", true}, {"scale", 0.3}};
    AttrMap joined;
    const char* const names[] = {"q", "k", "v"};
    for (std::int64_t i = 0; i < 3; ++i) {
      const std::string name = names[i];
      const Ints part{i * kHeads * kWidth, rows_first ? kAll : kRows * kAll, kWidth,
                      rows_first ? kBatch * kAll : kAll};
      attrs.set(name + "_shape", shape);
      attrs.set(name + "_part", part);
      joined.set("d" + name + "_part", part);
    }
    const std::string label = rows_first ? "parts, rows first" : "parts";
    const std::vector<Tensor> inputs{random_f64(whole, 1), random_f64(whole, 2), random_f64(whole, 3)};
    constexpr double kHalfWeights = 2e-3;  // tensor cores round weights to halves
    table.add("braid.Attention", {.label = label,
                                  .inputs = inputs,
                                  .attrs = attrs,
                                  .no_gradient_outputs = {0, 1},
                                  .numeric_gradient = false,
                                  .float32_tolerance = kHalfWeights});
    const std::vector<Tensor> backward = gradient_inputs(inputs, attrs);
    table.add("braid.AttentionGrad",
              {.label = label, .inputs = backward, .attrs = attrs, .float32_tolerance = kHalfWeights});
    for (const char* const name : {"dq_part", "dk_part", "dv_part"})
      attrs.set(name, joined.require<Ints>(name));
    attrs.set("joined_shape", Ints(whole.dims().begin(), whole.dims().end()));
    table.add(
        "braid.AttentionGrad",
        {.label = label + ", joined", .inputs = backward, .attrs = attrs, .float32_tolerance = kHalfWeights});
  }
}

}  // namespace

BRAID_OP_CASES(attention) {
  add_parts(table);
  const Shape inside{2, 3, 2, 4}, other{2, 5, 2, 4}, wide{2, 5, 2, 3};
  const std::vector<ShapedAttention> all{
      {"self", {2, 2, 3, 4}, {2, 2, 3, 4}, {2, 2, 3, 4}},
      {"causal, other widths", {2, 2, 3, 4}, {2, 2, 3, 4}, {2, 2, 3, 5}, {}, {{"causal", true}}},
      {"one matrix, more keys", {3, 4}, {7, 4}, {7, 2}, {}, {{"causal", true}, {"causal_offset", 4}}},
      {"causal, scale below zero", {2, 3, 4}, {2, 3, 4}, {2, 3, 4}, {}, {{"causal", true}, {"scale", -0.7}}},
      {"queries that see nothing",
       {1, 4, 2},
       {1, 3, 2},
       {1, 3, 2},
       {},
       {{"causal", true}, {"causal_offset", -2}}},
      {"added, of keys", {2, 2, 3, 4}, {2, 2, 5, 4}, {2, 2, 5, 4}, {random_f64({2, 1, 1, 5}, 6)}},
      {"added, of heads",
       {2, 2, 3, 4},
       {2, 2, 5, 4},
       {2, 2, 5, 4},
       {random_f64({2, 3, 5}, 6)},
       {{"scale", -0.7}}},
      {"added, of rows", {2, 2, 3, 4}, {2, 2, 5, 4}, {2, 2, 5, 4}, {random_f64({2, 1, 3, 5}, 6)}},
      {"added, for all, heads inside",
       {3, 5, 2, 4},
       {3, 4, 2, 4},
       {3, 4, 2, 8},
       {random_f64({5, 4}, 6)},
       {{"heads_inside", true}, {"causal", true}, {"causal_offset", 1}}},
      {"added, all hidden for one",
       {1, 2, 3},
       {1, 2, 3},
       {1, 2, 3},
       {f64({2, 2},
            {-std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), 0, 1})}},
      {"chosen",
       {3, 2, 2, 3, 4},
       {3, 2, 2, 5, 4},
       {3, 2, 2, 5, 4},
       {some_seen({3, 2, 1, 1, 5}, 6)},
       {{"hidden", -3.0}}},
      {"heads inside", inside, other, wide, {some_seen({2, 1, 3, 5}, 8)}, {{"heads_inside", true}}},
  };
  for (const ShapedAttention& s : all) {
    std::vector<Tensor> inputs{random_f64(s.q, 1), random_f64(s.k, 2), random_f64(s.v, 3)};
    inputs.insert(inputs.end(), s.mask.begin(), s.mask.end());
    table.add("braid.Attention", {.label = s.label,
                                  .inputs = inputs,
                                  .attrs = s.attrs,
                                  .no_gradient_inputs = {3},
                                  .no_gradient_outputs = {1}});
    table.add("braid.AttentionGrad",
              {.label = s.label, .inputs = gradient_inputs(inputs, s.attrs), .attrs = s.attrs});
    if (s.mask.empty() || s.mask[0].dtype() == DType::Bool ||
        s.mask[0].shape()[s.mask[0].shape().rank() - 2] == 1)
      continue;
    AttrMap attrs = s.attrs;
    attrs.set("mask_gradient", true);
    table.add("braid.AttentionGrad", {.label = std::string(s.label) + ", with the mask's gradient",
                                      .inputs = gradient_inputs(inputs, s.attrs),
                                      .attrs = attrs});
  }
  table.add("braid.Attention",
            {.label = "nothing",
             .inputs = {random_f64({2, 0, 4}, 1), random_f64({2, 3, 4}, 2), random_f64({2, 3, 4}, 3)},
             .no_gradient_outputs = {1}});
  table.add("braid.Attention",
            {.label = "no keys",
             .inputs = {random_f64({2, 2, 4}, 1), random_f64({2, 0, 4}, 2), random_f64({2, 0, 4}, 3)},
             .no_gradient_outputs = {1}});
  table.add("braid.Attention",
            {.label = "several tiles and blocks",
             .inputs = {random_f64({3, 210, 5}, 7), random_f64({3, 130, 5}, 8), random_f64({3, 130, 6}, 9)},
             .no_gradient_outputs = {1},
             .numeric_gradient = false});  // thousands of numbers: attention_test.cc compares such shapes
}

}  // namespace braid::testing
