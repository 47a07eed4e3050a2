#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

void cases_dynamic_partition(OpCaseTable& table) {
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
  for (const char* op : {"DynamicStitch", "ParallelDynamicStitch"}) {
    table.add(op, {.label = "rows, a gap",
                   .inputs = {axes({4, 0}), i32({}, {2}), random_f64({2, 3}, 1), random_f64({3}, 2)},
                   .known_inputs = {0, 1}});
    table.add(op, {.label = "matrix of indices",
                   .inputs = {i32({2, 2}, {3, 1, 0, 2}), random_f64({2, 2}, 1)},
                   .known_inputs = {0}});
    table.add(op, {.label = "nothing", .inputs = {i32({0}, {}), random_f64({0, 2}, 1)}, .known_inputs = {0}});
  }
}

}  // namespace braid::testing
