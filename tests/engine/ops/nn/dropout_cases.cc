#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(dropout) {
  table.add("braid.Dropout", {.label = "half", .inputs = {random_f64({4, 5}, 1)}, .attrs = {{"rate", 0.5}}});
  table.add("braid.Dropout", {.label = "nothing", .inputs = {random_f64({4}, 1)}, .attrs = {{"rate", 0.0}}});
  table.add("braid.Dropout", {.label = "many blocks",
                              .inputs = {random_f64({300, 301}, 1)},
                              .attrs = {{"rate", 0.1}, {"seed", 3}},
                              .numeric_gradient = false});  // too many elements for differences
}

}  // namespace braid::testing
