#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(space_to_batch) {
  const Tensor block = i32({2}, {2, 3}), pads = i32({2, 2}, {1, 0, 2, 1});
  table.add("SpaceToBatchND", {.label = "padded", .inputs = {random_f64({2, 3, 3, 2}, 1), block, pads}});
  table.add("BatchToSpaceND", {.label = "cropped", .inputs = {random_f64({12, 2, 2, 2}, 1), block, pads}});
  table.add("SpaceToBatchND",
            {.label = "one axis", .inputs = {random_f64({2, 6}, 1), i64({1}, {3}), i64({1, 2}, {0, 0})}});
  table.add("SpaceToBatchND", {.label = "block larger than what is left of the padding",
                               .inputs = {random_f64({1, 1}, 1), i64({1}, {4}), i64({1, 2}, {5, 2})}});
  table.add("BatchToSpaceND", {.label = "everything cropped",
                               .inputs = {random_f64({2, 1}, 1), i64({1}, {2}), i64({1, 2}, {1, 1})}});
  const Tensor square = i32({2, 2}, {1, 1, 0, 2});
  table.add(
      "SpaceToBatch",
      {.label = "padded", .inputs = {random_f64({1, 2, 2, 3}, 1), square}, .attrs = {{"block_size", 2}}});
  table.add(
      "BatchToSpace",
      {.label = "cropped", .inputs = {random_f64({4, 2, 2, 3}, 1), square}, .attrs = {{"block_size", 2}}});
}

}  // namespace braid::testing
