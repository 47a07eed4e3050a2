#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(set_operation) {
  const Tensor a = i32({2, 3}, {5, 1, 5, 2, 3, 4}), b = i32({2, 2}, {1, 7, 4, 4});
  for (const char* operation : {"a-b", "b-a", "intersection", "union"})
    table.add("DenseToDenseSetOperation",
              {.label = operation, .inputs = {a, b}, .attrs = {{"set_operation", operation}}});
  table.add("DenseToDenseSetOperation", {.label = "one row, none left",
                                         .inputs = {i64({2}, {4, 2}), i64({3}, {2, 4, 9})},
                                         .attrs = {{"set_operation", "a-b"}}});
}

}  // namespace braid::testing
