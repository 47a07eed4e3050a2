#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

void cases_reverse(OpCaseTable& table) {
  table.add("ReverseV2", {.label = "two axes", .inputs = {random_f64({2, 3, 2}, 1), axes({0, -1})}});
  table.add("ReverseV2", {.label = "no axis", .inputs = {random_f64({2, 3}, 1), i64({0}, {})}});
}

}  // namespace braid::testing
