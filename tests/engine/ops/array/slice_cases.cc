#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(slice) {
  const Tensor x = random_f64({3, 4}, 1);
  table.add("Slice", {.label = "inner box", .inputs = {x, axes({1, 1}), axes({2, 2})}});
  table.add("Slice", {.label = "to the end", .inputs = {x, i64({2}, {0, 2}), i64({2}, {-1, -1})}});
  table.add("Slice", {.label = "nothing", .inputs = {x, axes({1, 1}), axes({0, 2})}});
  table.add(
      "braid.SliceGrad",
      {.label = "inner box", .inputs = {random_f64({2, 2}, 2), axes({1, 1}), x}, .no_gradient_inputs = {2}});
}

}  // namespace braid::testing
