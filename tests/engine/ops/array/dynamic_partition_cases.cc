#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(dynamic_partition) {
  const AttrMap three{{"num_partitions", 3}};
  table.add(
      "DynamicPartition",
      {.label = "rows, one empty", .inputs = {random_f64({4, 3}, 1), axes({2, 0, 2, 0})}, .attrs = three});
  table.add(
      "DynamicPartition",
      {.label = "elements", .inputs = {random_f64({2, 2}, 1), i32({2, 2}, {1, 0, 2, 1})}, .attrs = three});
  table.add("braid.DynamicPartitionGrad", {.label = "rows",
                                           .inputs = {axes({1, 0, 1}), random_f64({3, 2}, 1),
                                                      random_f64({1, 2}, 2), random_f64({2, 2}, 3)}});
  const Tensor many = converted(random_i64({3000}, 4, 0, 3), DType::Int32);
  table.add("DynamicPartition", {.label = "many rows",
                                 .inputs = {random_f64({3000, 6}, 1), many},
                                 .attrs = three,
                                 .numeric_gradient = false});
  table.add("DynamicPartition", {.label = "bytes",
                                 .inputs = {bools({4}, {true, false, true, true}), axes({2, 0, 2, 0})},
                                 .attrs = three,
                                 .numeric_gradient = false});
  table.add("DynamicPartition",
            {.label = "nothing", .inputs = {random_f64({0, 2}, 1), i32({0}, {})}, .attrs = three});
  for (const char* op : {"DynamicStitch", "ParallelDynamicStitch"}) {
    table.add(op, {.label = "rows, a gap",
                   .inputs = {axes({4, 0}), i32({}, {2}), random_f64({2, 3}, 1), random_f64({3}, 2)},
                   .known_inputs = {0, 1}});
    table.add(op, {.label = "matrix of indices",
                   .inputs = {i32({2, 2}, {3, 1, 0, 2}), random_f64({2, 2}, 1)},
                   .known_inputs = {0}});
    table.add(op, {.label = "many rows, repeated",
                   .inputs = {many, axes({700, 2}), random_f64({3000, 5}, 1), random_f64({2, 5}, 2)},
                   .known_inputs = {0, 1},
                   .numeric_gradient = false});
    table.add(op, {.label = "nothing", .inputs = {i32({0}, {}), random_f64({0, 2}, 1)}, .known_inputs = {0}});
  }
}

}  // namespace braid::testing
