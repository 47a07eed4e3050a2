#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(ragged_concat) {
  const Tensor a = random_f64({7, 3}, 1), b = random_f64({5, 3}, 2);
  const Tensor a_offsets = i32({5}, {0, 3, 3, 4, 5}), b_offsets = i64({5}, {0, 0, 2, 2, 5});
  table.add("braid.RaggedConcat", {.label = "ragged", .inputs = {a, b, a_offsets, b_offsets}});
  table.add("braid.RaggedConcat", {.label = "context before",
                                   .inputs = {random_f64({8, 3}, 3), b, b_offsets},
                                   .attrs = {{"a_width", 2}}});
  table.add("braid.RaggedConcat",
            {.label = "a candidate behind, the last repeated",
             .inputs = {i64({7}, {1, 2, 3, 4, 5, 6, 7}), i64({4}, {9, 8, 7, 6}), a_offsets},
             .attrs = {{"b_width", 1}, {"repeat_last", true}}});
  table.add("braid.RaggedConcat",
            {.label = "no rows",
             .inputs = {random_f64({2, 3}, 4), random_f64({1, 3}, 5), i64({1}, {0}), i64({1}, {0})}});
  table.add("braid.RaggedConcat",
            {.label = "several blocks",
             .inputs = {random_f64({700, 64}, 6), random_f64({3, 64}, 7), i64({4}, {0, 300, 400, 650})},
             .attrs = {{"b_width", 1}},
             .numeric_gradient = false});  // 44,992 numbers: the others do for it
  const Tensor both = random_f64({12, 3}, 8);
  table.add("braid.RaggedSplit",
            {.label = "ragged", .inputs = {both, a, b, a_offsets, b_offsets}, .no_gradient_inputs = {1, 2}});
  table.add("braid.RaggedSplit", {.label = "candidates",
                                  .inputs = {both, a, random_f64({4, 1}, 9), a_offsets},
                                  .attrs = {{"b_width", 1}},
                                  .no_gradient_inputs = {1, 2}});
}

BRAID_OP_CASES(ragged_dense) {
  const Tensor offsets = i64({5}, {0, 3, 3, 4, 6});
  table.add("braid.RaggedToDense",
            {.label = "matrix", .inputs = {random_f64({8, 3}, 1), offsets}, .attrs = {{"max_length", 4}}});
  table.add("braid.RaggedToDense",
            {.label = "cut", .inputs = {random_f64({8}, 2), offsets}, .attrs = {{"max_length", 2}}});
  table.add(
      "braid.RaggedToDense",
      {.label = "no rows", .inputs = {random_f64({2, 3}, 3), i32({1}, {0})}, .attrs = {{"max_length", 2}}});
  table.add("braid.DenseToRagged", {.label = "matrix",
                                    .inputs = {random_f64({4, 4, 3}, 4), offsets, random_f64({8, 2}, 5)},
                                    .no_gradient_inputs = {2}});
  table.add("braid.DenseToRagged",
            {.label = "cut", .inputs = {random_f64({4, 2}, 6), offsets, i64({6}, {1, 2, 3, 4, 5, 6})}});
}

BRAID_OP_CASES(ragged_rows) {
  table.add(
      "braid.RowsLike",
      {.label = "more", .inputs = {random_f64({3, 2}, 1), random_f64({5}, 2)}, .no_gradient_inputs = {1}});
  table.add("braid.RowsLike", {.label = "fewer",
                               .inputs = {random_f64({3, 2}, 1), random_f64({2, 4}, 2)},
                               .no_gradient_inputs = {1}});
  table.add("braid.SameOffsets", {.label = "equal", .inputs = {i32({3}, {0, 2, 2}), i64({3}, {0, 2, 2})}});
  const std::vector<Tensor> inputs{i64({5}, {0, 3, 3, 4, 9}), random_f64({11, 2}, 3)};
  table.add("braid.RaggedPositions", {.label = "from the front", .inputs = inputs});
  table.add("braid.RaggedPositions", {.label = "from the end",
                                      .inputs = inputs,
                                      .attrs = {{"from_end", true}, {"prefix", 2}, {"limit", 5}}});
}

}  // namespace braid::testing
