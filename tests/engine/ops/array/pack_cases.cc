#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(pack) {
  const Tensor a = random_f64({2, 3}, 1), b = random_f64({2, 3}, 2);
  table.add("Pack", {.label = "first axis", .inputs = {a, b}, .attrs = {{"axis", 0}}});
  table.add("Pack", {.label = "middle axis", .inputs = {a, b}, .attrs = {{"axis", 1}}});
  table.add("Pack", {.label = "last axis", .inputs = {a, b}, .attrs = {{"axis", -1}}});
  table.add("Pack", {.label = "scalars", .inputs = {i32({}, {3}), i32({}, {4}), i32({}, {5})}});
  table.add("Unpack", {.label = "first axis", .inputs = {a}, .attrs = {{"num", 2}}});
  table.add("Unpack", {.label = "last axis", .inputs = {a}, .attrs = {{"num", 3}, {"axis", -1}}});
}

}  // namespace braid::testing
