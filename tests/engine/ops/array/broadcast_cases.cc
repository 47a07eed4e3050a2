#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(broadcast) {
  table.add("BroadcastTo", {.label = "row to matrix", .inputs = {random_f64({3}, 1), axes({2, 3})}});
  table.add("BroadcastTo",
            {.label = "ones inside", .inputs = {random_f64({2, 1, 3}, 1), axes({3, 2, 4, 3})}});
  table.add("BroadcastTo", {.label = "same", .inputs = {random_f64({2, 3}, 1), i64({2}, {2, 3})}});
  table.add("BroadcastArgs", {.label = "other ranks", .inputs = {axes({2, 1}), axes({4, 1, 3})}});
  table.add("BroadcastGradientArgs", {.label = "other ranks", .inputs = {axes({2, 1}), axes({4, 1, 3})}});
  table.add("BroadcastGradientArgs", {.label = "shared ones", .inputs = {axes({2, 1, 1}), axes({2, 1, 3})}});
  table.add("BroadcastGradientArgs", {.label = "same", .inputs = {i64({2}, {2, 1}), i64({2}, {2, 1})}});
}

}  // namespace braid::testing
