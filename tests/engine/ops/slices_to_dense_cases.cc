#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

void cases_slices_to_dense(OpCaseTable& table) {
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
}

}  // namespace braid::testing
