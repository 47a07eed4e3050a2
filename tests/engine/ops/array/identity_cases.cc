#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(identity) {
  for (const char* op : {"Identity", "Snapshot", "PlaceholderWithDefault", "PreventGradient"})
    table.add(op, {.label = "matrix", .inputs = {random_f64({2, 3}, 1)}});
  // Its rule gives none, whatever the numbers say.
  table.add("StopGradient",
            {.label = "matrix", .inputs = {random_f64({2, 3}, 1)}, .numeric_gradient = false});
  table.add("IdentityN", {.label = "two types", .inputs = {random_f64({2, 3}, 1), i32({2}, {1, 2})}});
  table.add("IdentityN", {.label = "empty", .inputs = {random_f64({0, 3}, 1)}});
  table.add("NoOp", {.label = "nothing"});
  table.add("EnsureShape", {.label = "partly known",
                            .inputs = {random_f64({2, 3}, 1)},
                            .attrs = {{"shape", Shape{Shape::kUnknown, 3}}}});
}

}  // namespace braid::testing
