#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(constant) {
  table.add("Const", {.label = "float64", .attrs = {{"value", f64({2}, {1, 2})}, {"dtype", DType::Float64}}});
  table.add("Const", {.label = "int64 scalar", .attrs = {{"value", i64({}, {7})}}});
}

}  // namespace braid::testing
