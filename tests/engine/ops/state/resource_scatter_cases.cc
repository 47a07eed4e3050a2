#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(resource_scatter) {
  for (const char* op :
       {"ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterMul", "ResourceScatterDiv",
        "ResourceScatterMin", "ResourceScatterMax", "ResourceScatterUpdate"}) {
    table.add(op, {.label = "duplicates",
                   .inputs = {random_f64({4, 3}, 1), axes({2, 0, 2}), random_f64({3, 3}, 2, 0.5, 1.5)},
                   .variables = {0}});
    table.add(op,
              {.label = "int64", .inputs = {i64({2}, {1, 2}), i32({}, {1}), i64({}, {5})}, .variables = {0}});
    table.add(op, {.label = "one scalar for all",
                   .inputs = {random_f64({4, 3}, 1), axes({2, 0}), f64({}, {1.5})},
                   .variables = {0}});
  }
}

}  // namespace braid::testing
