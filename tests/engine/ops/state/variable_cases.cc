#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(variable) {
  const Tensor w = random_f64({2, 3}, 1), x = random_f64({2, 3}, 2);
  table.add("ReadVariableOp", {.label = "matrix",
                               .inputs = {w},
                               .attrs = {{"dtype", DType::Float64}},
                               .variables = {0},
                               .float32_tolerance = 0});
  for (const char* op : {"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})
    table.add(op, {.label = "matrix", .inputs = {w, x}, .variables = {0}});
  table.add("VariableShape", {.label = "matrix", .inputs = {w}, .variables = {0}});
  table.add("VarIsInitializedOp", {.label = "matrix", .inputs = {w}, .variables = {0}});
}

}  // namespace braid::testing
