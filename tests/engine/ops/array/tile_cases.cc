#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(tile) {
  const Tensor x = random_f64({2, 3}, 1);
  table.add("Tile", {.label = "both axes", .inputs = {x, axes({2, 3})}});
  table.add("Tile", {.label = "once", .inputs = {x, i64({2}, {1, 1})}});
  table.add("Tile", {.label = "never", .inputs = {x, axes({0, 1})}});
  table.add("Tile", {.label = "three axes", .inputs = {random_f64({2, 1, 2}, 2), axes({1, 3, 2})}});
  table.add(
      "braid.TileGrad",
      {.label = "both axes", .inputs = {random_f64({4, 9}, 2), axes({2, 3}), x}, .no_gradient_inputs = {2}});
}

}  // namespace braid::testing
