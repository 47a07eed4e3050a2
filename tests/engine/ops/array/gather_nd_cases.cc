#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(gather_nd) {
  const Tensor cube = random_f64({2, 4, 3}, 2);
  table.add("GatherNd", {.label = "slices", .inputs = {cube, i32({3, 2}, {0, 1, 1, 3, 0, 1})}});
  table.add("GatherNd", {.label = "elements", .inputs = {cube, i64({1, 2, 3}, {0, 1, 2, 1, 3, 0})}});
  table.add("GatherNd", {.label = "everything", .inputs = {cube, i64({2, 0}, {})}});
  table.add("ScatterNd",
            {.label = "duplicates", .inputs = {i32({3, 1}, {2, 0, 2}), random_f64({3, 2}, 1), axes({4, 2})}});
  table.add("ScatterNd", {.label = "elements",
                          .inputs = {i64({2, 2}, {1, 0, 1, 1}), random_f64({2}, 1), i64({2}, {2, 3})}});
}

}  // namespace braid::testing
