#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(shape) {
  for (const char* op : {"Shape", "Size"})
    for (DType type : {DType::Int32, DType::Int64})
      table.add(op, {.label = std::string(dtype_name(type)),
                     .inputs = {random_f64({2, 3, 4}, 1)},
                     .attrs = {{"out_type", type}}});
  table.add("Shape", {.label = "scalar", .inputs = {random_f64({}, 1)}});
  table.add("ShapeN", {.label = "two", .inputs = {random_f64({2, 3}, 1), random_f64({4}, 2)}});
  table.add("Rank", {.label = "matrix", .inputs = {random_f64({2, 3}, 1)}});
}

}  // namespace braid::testing
