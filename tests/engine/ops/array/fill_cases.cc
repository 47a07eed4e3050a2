#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(fill) {
  table.add("Fill", {.label = "matrix", .inputs = {axes({2, 3}), f64({}, {1.5})}});
  table.add("Fill", {.label = "scalar", .inputs = {i64({0}, {}), f64({}, {1.5})}});
  table.add("Fill", {.label = "bools", .inputs = {axes({3}), bools({}, {true})}});
  for (const char* op : {"ZerosLike", "OnesLike"}) {
    // Constant in its input, so the rule gives no gradient.
    table.add(op, {.label = "matrix", .inputs = {random_f64({2, 3}, 1)}, .numeric_gradient = false});
    table.add(op, {.label = "bools", .inputs = {bools({2}, {true, false})}});
  }
  table.add("Range", {.label = "int32", .inputs = {i32({}, {2}), i32({}, {9}), i32({}, {3})}});
  table.add("Range", {.label = "downwards", .inputs = {i64({}, {3}), i64({}, {-1}), i64({}, {-1})}});
  table.add("Range", {.label = "fractions", .inputs = {f64({}, {0}), f64({}, {1}), f64({}, {0.25})}});
  table.add("Range", {.label = "empty", .inputs = {i32({}, {2}), i32({}, {2}), i32({}, {1})}});
  table.add("LinSpace", {.label = "five", .inputs = {f64({}, {-1}), f64({}, {2}), i32({}, {5})}});
  table.add("LinSpace", {.label = "one", .inputs = {f64({}, {-1}), f64({}, {2}), i64({}, {1})}});
  table.add("LinSpace",
            {.label = "several blocks", .inputs = {f64({}, {0}), f64({}, {1}), i32({}, {70000})}});
  table.add("Empty", {.label = "zeros", .inputs = {axes({2, 3})}, .attrs = {{"dtype", DType::Float32}}});
}

}  // namespace braid::testing
