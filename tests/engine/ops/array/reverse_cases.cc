#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(reverse) {
  table.add("ReverseV2", {.label = "two axes", .inputs = {random_f64({2, 3, 2}, 1), axes({0, -1})}});
  table.add("ReverseV2", {.label = "no axis", .inputs = {random_f64({2, 3}, 1), i64({0}, {})}});
}

BRAID_OP_CASES(roll) {
  const Tensor x = random_f64({3, 4, 2}, 1);
  table.add("Roll", {.label = "one axis", .inputs = {x, i32({}, {1}), i32({}, {1})}});
  table.add("Roll", {.label = "several axes", .inputs = {x, axes({-2, 7, 3}), axes({0, -2, 1})}});
  table.add("Roll", {.label = "no elements", .inputs = {random_f64({0, 2}, 1), i64({}, {3}), i64({}, {0})}});
}

BRAID_OP_CASES(reverse_sequence) {
  const auto add = [&](const char* label, const Shape& shape, const Tensor& lengths, int seq, int batch) {
    table.add("ReverseSequence", {.label = label,
                                  .inputs = {random_f64(shape, 1), lengths},
                                  .attrs = {{"seq_dim", seq}, {"batch_dim", batch}}});
  };
  add("rows", {3, 4}, axes({0, 4, 2}), 1, 0);
  add("columns", {4, 2, 3}, i64({3}, {1, 2, 2}), 1, 2);
  add("the batch inside", {3, 2, 2}, axes({3, 2}), 0, -1);
  add("no elements", {2, 0}, axes({0, 0}), 1, 0);
}

}  // namespace braid::testing
