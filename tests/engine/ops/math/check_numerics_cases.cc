#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(check_numerics) {
  for (const char* op : {"CheckNumerics", "CheckNumericsV2"}) {
    table.add(op, {.label = "finite", .inputs = {random_f64({2, 3}, 1)}, .attrs = {{"message", "x"}}});
    table.add(op, {.label = "several blocks", .inputs = {random_f64({70000}, 1)}, .numeric_gradient = false});
  }
}

}  // namespace braid::testing
