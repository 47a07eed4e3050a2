#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(add_n) {
  for (int inputs : {1, 2, 3, 4, 5, 8, 16, 17, 33}) {
    OpCase c{.label = std::to_string(inputs) + " inputs"};
    for (int i = 0; i < inputs; ++i) c.inputs.push_back(random_f64({2, 3}, static_cast<std::uint64_t>(i)));
    table.add("AddN", c);
  }
  table.add("AddN", {.label = "int32", .inputs = {i32({2}, {1, 2}), i32({2}, {3, 4})}});
  table.add("AddN", {.label = "many blocks",
                     .inputs = {random_f64({300, 301}, 1), random_f64({300, 301}, 2)},
                     .numeric_gradient = false});  // 90,300 central differences say no more than six
}

}  // namespace braid::testing
