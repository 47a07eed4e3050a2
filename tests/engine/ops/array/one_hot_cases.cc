#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(one_hot) {
  const Tensor on = f64({}, {2}), off = f64({}, {-1});
  table.add("OneHot",
            {.label = "last axis, one outside", .inputs = {axes({1, 0, 5, -1}), i32({}, {3}), on, off}});
  table.add("OneHot", {.label = "first axis",
                       .inputs = {i64({2, 2}, {1, 0, 2, 1}), i32({}, {3}), on, off},
                       .attrs = {{"axis", 0}}});
  table.add("OneHot", {.label = "scalar", .inputs = {i64({}, {1}), i32({}, {2}), on, off}});
}

}  // namespace braid::testing
