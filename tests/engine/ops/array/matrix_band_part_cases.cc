#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(matrix_band_part) {
  table.add("MatrixBandPart",
            {.label = "a band", .inputs = {random_f64({2, 4, 5}, 1), i64({}, {1}), i64({}, {2})}});
  table.add("MatrixBandPart",
            {.label = "lower triangle", .inputs = {random_f64({4, 3}, 1), i32({}, {-1}), i32({}, {0})}});
  table.add("MatrixBandPart", {.label = "several blocks",
                               .inputs = {random_f64({3, 200, 300}, 1), i64({}, {0}), i64({}, {-1})},
                               .numeric_gradient = false});  // 180,000 differences say no more than 40
  table.add("MatrixBandPart",
            {.label = "no elements", .inputs = {random_f64({3, 0}, 1), i64({}, {0}), i64({}, {0})}});
}

}  // namespace braid::testing
