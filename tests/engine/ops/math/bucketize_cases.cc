#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(bucketize) {
  const std::vector<double> boundaries{-0.5, 0, 0.25, 2};
  const AttrMap attrs{{"boundaries", boundaries}};
  table.add("Bucketize", {.label = "matrix", .inputs = {random_f64({3, 5}, 1)}, .attrs = attrs});
  table.add("Bucketize", {.label = "several blocks", .inputs = {random_f64({20000}, 1)}, .attrs = attrs});
  table.add("Bucketize", {.label = "int64", .inputs = {i64({4}, {-1, 0, 2, 3})}, .attrs = attrs});
  table.add("Bucketize", {.label = "no boundaries", .inputs = {axes({1, 2})}});
  const Tensor sorted = f64({2, 3}, {1, 2, 2, -1, 0, 4});
  for (const char* op : {"LowerBound", "UpperBound"}) {
    table.add(op, {.label = "rows", .inputs = {sorted, f64({2, 4}, {2, 0, 3, 1, 0, -2, 4, 5})}});
    table.add(op, {.label = "nothing sorted",
                   .inputs = {i32({1, 0}, {}), i32({1, 2}, {1, 2})},
                   .attrs = {{"out_type", DType::Int64}}});
    table.add(op, {.label = "no values", .inputs = {sorted, random_f64({2, 0}, 1)}});
  }
}

}  // namespace braid::testing
