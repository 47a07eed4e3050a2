#include <limits>

#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

struct ShapedAttention {
  const char* label;
  Shape q, k, v, out, rows;
  std::vector<Tensor> mask = {};  // none, or one
  AttrMap attrs = {};
};

Tensor some_seen(Shape shape, std::uint64_t seed) {
  return converted(random_i64(shape, seed, 0, 2), DType::Bool);
}

Shape sums_of(const Shape& rows) {
  std::vector<std::int64_t> dims(rows.dims().begin(), rows.dims().end());
  dims.push_back(2);
  return Shape(dims);
}

}  // namespace

BRAID_OP_CASES(attention) {
  const Shape inside{2, 3, 2, 4}, other{2, 5, 2, 4}, wide{2, 5, 2, 3};
  const std::vector<ShapedAttention> all{
      {"self", {2, 2, 3, 4}, {2, 2, 3, 4}, {2, 2, 3, 4}, {2, 2, 3, 4}, {2, 2, 3}},
      {"causal, other widths",
       {2, 2, 3, 4},
       {2, 2, 3, 4},
       {2, 2, 3, 5},
       {2, 2, 3, 5},
       {2, 2, 3},
       {},
       {{"causal", true}}},
      {"one matrix, more keys",
       {3, 4},
       {7, 4},
       {7, 2},
       {3, 2},
       {3},
       {},
       {{"causal", true}, {"causal_offset", 4}}},
      {"queries that see nothing",
       {1, 4, 2},
       {1, 3, 2},
       {1, 3, 2},
       {1, 4, 2},
       {1, 4},
       {},
       {{"causal", true}, {"causal_offset", -2}}},
      {"added, of keys",
       {2, 2, 3, 4},
       {2, 2, 5, 4},
       {2, 2, 5, 4},
       {2, 2, 3, 4},
       {2, 2, 3},
       {random_f64({2, 1, 1, 5}, 6)}},
      {"added, of heads",
       {2, 2, 3, 4},
       {2, 2, 5, 4},
       {2, 2, 5, 4},
       {2, 2, 3, 4},
       {2, 2, 3},
       {random_f64({2, 3, 5}, 6)},
       {{"scale", -0.7}}},
      {"added, all hidden for one",
       {1, 2, 3},
       {1, 2, 3},
       {1, 2, 3},
       {1, 2, 3},
       {1, 2},
       {f64({2, 2},
            {-std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), 0, 1})}},
      {"chosen",
       {3, 2, 2, 3, 4},
       {3, 2, 2, 5, 4},
       {3, 2, 2, 5, 4},
       {3, 2, 2, 3, 4},
       {3, 2, 2, 3},
       {some_seen({3, 2, 1, 1, 5}, 6)},
       {{"hidden", -3.0}}},
      {"heads inside",
       inside,
       other,
       wide,
       {2, 3, 2, 3},
       {2, 3, 2},
       {some_seen({2, 1, 3, 5}, 8)},
       {{"heads_inside", true}}},
  };
  for (const ShapedAttention& s : all) {
    std::vector<Tensor> inputs{random_f64(s.q, 1), random_f64(s.k, 2), random_f64(s.v, 3)};
    std::vector<Tensor> backward = inputs;
    inputs.insert(inputs.end(), s.mask.begin(), s.mask.end());
    table.add("braid.Attention", {.label = s.label,
                                  .inputs = inputs,
                                  .attrs = s.attrs,
                                  .no_gradient_inputs = {3},
                                  .no_gradient_outputs = {1}});
    backward.insert(backward.end(),
                    {random_f64(s.out, 4), random_f64(s.out, 5), random_f64(sums_of(s.rows), 6, 1, 2)});
    backward.insert(backward.end(), s.mask.begin(), s.mask.end());
    table.add("braid.AttentionGrad", {.label = s.label, .inputs = backward, .attrs = s.attrs});
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
