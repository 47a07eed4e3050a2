#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(top_k) {
  const Tensor x = random_f64({2, 3, 7}, 1);
  table.add("TopKV2", {.label = "three of seven", .inputs = {x, i32({}, {3})}});
  table.add("TopKV2", {.label = "all, int64 indices",
                       .inputs = {x, i64({}, {7})},
                       .attrs = {{"index_type", DType::Int64}, {"sorted", false}}});
  table.add("TopKV2", {.label = "none", .inputs = {x, i32({}, {0})}});
  table.add("TopKV2", {.label = "several blocks",
                       .inputs = {random_f64({900, 120}, 2), i32({}, {5})},
                       .numeric_gradient = false});  // 108,000 differences say no more than 42
  table.add("TopKV2", {.label = "wide rows",
                       .inputs = {random_f64({3, 5000}, 2), i32({}, {4})},
                       .numeric_gradient = false});  // size
  table.add("TopKV2", {.label = "int64 ties", .inputs = {i64({6}, {3, 1, 3, 2, 3, 0}), i32({}, {4})}});
  table.add("TopK", {.label = "attribute", .inputs = {x}, .attrs = {{"k", 2}}});
  table.add("braid.TopKGrad",
            {.label = "matrix",
             .inputs = {random_f64({2, 2}, 1), i32({2, 2}, {3, 0, 1, 2}), random_f64({2, 4}, 2)}});
}

}  // namespace braid::testing
