#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(scatter_nd) {
  const Tensor cube = random_f64({2, 4, 3}, 2);
  for (const char* op : {"ResourceScatterNdAdd", "ResourceScatterNdSub", "ResourceScatterNdUpdate",
                         "ResourceScatterNdMin", "ResourceScatterNdMax"}) {
    table.add(op, {.label = "slices, duplicates",
                   .inputs = {cube, i32({3, 2}, {0, 1, 1, 3, 0, 1}), random_f64({3, 3}, 1)},
                   .variables = {0}});
    table.add(op, {.label = "elements",
                   .inputs = {i32({2, 2}, {1, 2, 3, 4}), i64({1, 2}, {1, 0}), i32({1}, {9})},
                   .variables = {0}});
  }
  for (const char* op : {"TensorScatterAdd", "TensorScatterSub", "TensorScatterUpdate", "TensorScatterMin",
                         "TensorScatterMax"}) {
    table.add(op, {.label = "slices", .inputs = {cube, i32({2, 2}, {0, 1, 1, 3}), random_f64({2, 3}, 1)}});
    table.add(op, {.label = "no updates", .inputs = {cube, i64({0, 1}, {}), random_f64({0, 4, 3}, 1)}});
    table.add(op, {.label = "several blocks",
                   .inputs = {random_f64({400, 200}, 1), random_i64({700, 1}, 2, 0, 400),
                              random_f64({700, 200}, 3)},
                   .numeric_gradient = false});  // duplicates: what an update overwrites has no share
  }
}

}  // namespace braid::testing
