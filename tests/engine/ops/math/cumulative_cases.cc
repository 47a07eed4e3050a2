#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(cumulative) {
  for (const char* op : {"Cumsum", "Cumprod"}) {
    const Tensor cube = random_f64({2, 3, 4}, 1, 0.5, 1.5);
    for (std::int32_t axis : {0, 1, -1})
      for (bool exclusive : {false, true})
        for (bool reverse : {false, true})
          table.add(op, {.label = "axis " + std::to_string(axis) + (exclusive ? ", exclusive" : "") +
                                  (reverse ? ", reverse" : ""),
                         .inputs = {cube, i32({}, {axis})},
                         .attrs = {{"exclusive", exclusive}, {"reverse", reverse}}});
    table.add(op, {.label = "several blocks",
                   .inputs = {random_f64({70, 3, 700}, 2, 0.9, 1.1), i64({}, {1})},
                   .numeric_gradient = false});  // 147,000 differences say no more than 24
    table.add(op, {.label = "long lines",
                   .inputs = {random_f64({3, 1001}, 2, 0.99, 1.01), i32({}, {1})},
                   .attrs = {{"exclusive", true}},
                   .numeric_gradient = false});  // size
    table.add(op, {.label = "no elements", .inputs = {random_f64({3, 0, 2}, 2), i32({}, {1})}});
    table.add(op, {.label = "int64", .inputs = {i64({4}, {1, -2, 3, 4}), i32({}, {0})}});
  }
}

}  // namespace braid::testing
