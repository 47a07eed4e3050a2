#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

void cases_concat(OpCaseTable& table) {
  const Tensor a = random_f64({2, 3}, 1), b = random_f64({2, 1}, 2), c = random_f64({2, 0}, 3);
  table.add("ConcatV2", {.label = "last axis", .inputs = {a, b, c, i32({}, {-1})}});
  table.add("ConcatV2", {.label = "first axis", .inputs = {a, a, i64({}, {0})}});
  table.add("ConcatV2", {.label = "one input", .inputs = {a, i32({}, {1})}});
  table.add("Concat", {.label = "last axis", .inputs = {i32({}, {1}), a, b}});
  table.add("Concat", {.label = "middle axis",
                       .inputs = {i32({}, {1}), random_f64({2, 1, 3}, 4), random_f64({2, 2, 3}, 5)}});
  table.add("braid.SplitLike", {.label = "last axis",
                                .inputs = {i32({}, {1}), random_f64({2, 4}, 6), a, b},
                                .no_gradient_inputs = {2, 3}});
  table.add("ConcatOffset", {.label = "middle axis",
                             .inputs = {i32({}, {1}), axes({2, 3, 5}), axes({2, 4, 5}), axes({2, 1, 5})}});
}

}  // namespace braid::testing
