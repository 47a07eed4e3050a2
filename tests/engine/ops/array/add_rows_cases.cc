#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(add_rows) {
  table.add("braid.AddRows", {.label = "duplicates",
                              .inputs = {random_f64({5, 3}, 1), axes({2, 0, 2, 2}), random_f64({4, 3}, 2)}});
  table.add("braid.AddRows",
            {.label = "no rows", .inputs = {random_f64({4, 3}, 1), i64({0}, {}), random_f64({0, 3}, 2)}});
  table.add("braid.AddRows", {.label = "scalars as rows",
                              .inputs = {random_f64({3}, 1), i64({4}, {1, 1, 0, 1}), random_f64({4}, 2)}});
  table.add("braid.AddRows", {.label = "rows of nothing",
                              .inputs = {random_f64({3, 0}, 1), i64({2}, {1, 2}), random_f64({2, 0}, 2)}});
  table.add("braid.AddRows",
            {.label = "many, of more than a block's columns",
             .inputs = {random_f64({900, 300}, 3), random_i64({700}, 4, 0, 900), random_f64({700, 300}, 5)}});
  table.add("braid.AddRows",
            {.label = "one row again and again",
             .inputs = {random_f64({9, 17}, 3), random_i64({2000}, 4, 7, 9), random_f64({2000, 17}, 5)}});
}

}  // namespace braid::testing
