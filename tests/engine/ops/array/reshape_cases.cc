#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(reshape) {
  table.add("Reshape", {.label = "to known", .inputs = {random_f64({2, 6}, 1), axes({3, 4})}});
  table.add("Reshape", {.label = "one free", .inputs = {random_f64({2, 6}, 1), i64({2}, {-1, 4})}});
  table.add("Reshape", {.label = "to scalar", .inputs = {random_f64({1, 1}, 1), i32({0}, {})}});
  table.add("Reshape", {.label = "empty", .inputs = {random_f64({0, 6}, 1), axes({3, 0})}});
  table.add("ExpandDims", {.label = "front", .inputs = {random_f64({2, 3}, 1), i32({}, {0})}});
  table.add("ExpandDims", {.label = "back", .inputs = {random_f64({2, 3}, 1), i64({}, {-1})}});
  table.add("Squeeze", {.label = "all ones", .inputs = {random_f64({1, 3, 1}, 1)}});
  table.add("Squeeze", {.label = "one of them",
                        .inputs = {random_f64({1, 3, 1}, 1)},
                        .attrs = {{"squeeze_dims", std::vector<std::int64_t>{-1}}}});
  table.add("braid.ReshapeLike", {.label = "matrix",
                                  .inputs = {random_f64({2, 6}, 1), random_f64({3, 4}, 2)},
                                  .no_gradient_inputs = {1}});
  const auto rows = [](std::int64_t n) { return AttrMap{{"rows", n}}; };
  table.add("braid.LeadingRows", {.label = "some", .inputs = {random_f64({5, 3}, 1)}, .attrs = rows(4)});
  table.add("braid.LeadingRows", {.label = "all", .inputs = {random_f64({2, 3, 2}, 1)}, .attrs = rows(2)});
  table.add("braid.LeadingRows", {.label = "none", .inputs = {random_f64({2, 3}, 1)}, .attrs = rows(0)});
}

}  // namespace braid::testing
