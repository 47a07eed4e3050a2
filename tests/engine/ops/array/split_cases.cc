#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(split) {
  table.add("Split",
            {.label = "rows", .inputs = {i32({}, {0}), random_f64({4, 3}, 1)}, .attrs = {{"num_split", 2}}});
  table.add(
      "Split",
      {.label = "last axis", .inputs = {i32({}, {-1}), random_f64({2, 3}, 1)}, .attrs = {{"num_split", 3}}});
  table.add(
      "Split",
      {.label = "one part", .inputs = {i32({}, {0}), random_f64({2, 3}, 1)}, .attrs = {{"num_split", 1}}});
  table.add("SplitV", {.label = "the rest is free",
                       .inputs = {random_f64({2, 6}, 1), i64({3}, {1, -1, 2}), i32({}, {1})},
                       .attrs = {{"num_split", 3}}});
  table.add("SplitV", {.label = "an empty part",
                       .inputs = {random_f64({3, 2}, 1), i32({2}, {0, 3}), i32({}, {-2})},
                       .attrs = {{"num_split", 2}}});
}

}  // namespace braid::testing
