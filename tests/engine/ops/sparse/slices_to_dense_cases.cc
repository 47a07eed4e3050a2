#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(slices_to_dense) {
  const Tensor like = random_f64({4, 3}, 1);
  table.add("braid.SlicesToDense", {.label = "duplicates",
                                    .inputs = {axes({2, 0, 2, 2}), random_f64({4, 3}, 2), like},
                                    .no_gradient_inputs = {2}});
  table.add(
      "braid.SlicesToDense",
      {.label = "no rows", .inputs = {i64({0}, {}), random_f64({0, 3}, 2), like}, .no_gradient_inputs = {2}});
  table.add("braid.SlicesToDense", {.label = "scalars as rows",
                                    .inputs = {i64({3}, {1, 1, 0}), random_f64({3}, 2), random_f64({2}, 3)},
                                    .no_gradient_inputs = {2}});
  table.add("braid.SlicesToDense",
            {.label = "many rows of 16",
             .inputs = {random_i64({2500}, 4, 0, 40), random_f64({2500, 16}, 5), random_f64({40, 16}, 6)},
             .no_gradient_inputs = {2},
             .numeric_gradient = false});  // too many elements; the rule is the same
}

}  // namespace braid::testing
