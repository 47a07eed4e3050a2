#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(bitcast) {
  // Other bits in float32 and float64: there is no variant in float32 to compare with.
  table.add("Bitcast", {.label = "same size",
                        .inputs = {random_f64({2, 3}, 1)},
                        .attrs = {{"type", DType::Int64}},
                        .float32_tolerance = 0});
  table.add("Bitcast",
            {.label = "smaller", .inputs = {i64({2}, {1, -1})}, .attrs = {{"type", DType::Int32}}});
  table.add(
      "Bitcast",
      {.label = "larger", .inputs = {i32({3, 2}, {1, 2, 3, 4, 5, 6})}, .attrs = {{"type", DType::Int64}}});
}

}  // namespace braid::testing
