#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(transpose) {
  table.add("Transpose", {.label = "matrix", .inputs = {random_f64({2, 3}, 1), axes({1, 0})}});
  table.add("Transpose", {.label = "rank 4", .inputs = {random_f64({2, 3, 4, 2}, 1), axes({0, 3, 1, 2})}});
  table.add("Transpose", {.label = "nothing moves", .inputs = {random_f64({2, 3}, 1), i64({2}, {0, 1})}});
  table.add("Transpose", {.label = "empty", .inputs = {random_f64({0, 3}, 1), axes({1, 0})}});
  table.add("Transpose", {.label = "many blocks",
                          .inputs = {random_f64({3, 333, 257}, 1), axes({2, 0, 1})},
                          .numeric_gradient = false});  // too many elements; the rule is the same
  table.add("InvertPermutation", {.label = "four", .inputs = {i32({4}, {2, 0, 3, 1})}});
  table.add("InvertPermutation", {.label = "int64", .inputs = {i64({2}, {1, 0})}});
  table.add("Transpose", {.label = "odd tiles",
                          .inputs = {random_f64({2, 33, 3, 47}, 1), axes({0, 3, 2, 1})},
                          .numeric_gradient = false});  // too many elements; the rule is the same
  table.add("Transpose",
            {.label = "rows stay whole", .inputs = {random_f64({2, 5, 7, 6}, 1), axes({0, 2, 1, 3})}});
}

}  // namespace braid::testing
