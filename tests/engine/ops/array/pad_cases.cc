#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(pad) {
  const Tensor x = random_f64({2, 3}, 1), paddings = i32({2, 2}, {1, 0, 2, 1});
  table.add("Pad", {.label = "matrix", .inputs = {x, paddings}});
  table.add("Pad", {.label = "empty", .inputs = {random_f64({0, 3}, 1), i64({2, 2}, {1, 1, 0, 0})}});
  table.add("PadV2", {.label = "matrix", .inputs = {x, paddings, f64({}, {1.5})}});
  table.add("braid.PadGrad",
            {.label = "matrix", .inputs = {random_f64({3, 6}, 2), paddings, x}, .no_gradient_inputs = {2}});
}

}  // namespace braid::testing
