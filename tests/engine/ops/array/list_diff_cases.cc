#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(list_diff) {
  table.add("ListDiff", {.label = "some", .inputs = {i32({6}, {5, 1, 5, 3, 1, 7}), i32({3}, {1, 7, 9})}});
  table.add("ListDiff", {.label = "all, int64 indices",
                         .inputs = {i64({3}, {4, 2, 4}), i64({1}, {3})},
                         .attrs = {{"out_idx", DType::Int64}}});
  table.add("ListDiff", {.label = "none", .inputs = {f64({2}, {0.5, 2}), f64({2}, {2, 0.5})}});
  table.add("ListDiff", {.label = "of nothing", .inputs = {i32({0}, {}), i32({2}, {1, 2})}});
  table.add("ListDiff", {.label = "without nothing", .inputs = {i32({2}, {1, 2}), i32({0}, {})}});
}

}  // namespace braid::testing
