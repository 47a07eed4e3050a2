#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

void cases_segment_sum(OpCaseTable& table) {
  table.add("UnsortedSegmentSum", {.label = "duplicates, one left out",
                                   .inputs = {random_f64({4, 3}, 1), axes({2, -1, 2, 0}), i32({}, {4})}});
  table.add("UnsortedSegmentSum",
            {.label = "matrix of ids",
             .inputs = {random_f64({2, 2, 3}, 1), i64({2, 2}, {1, 0, 1, 1}), i64({}, {2})}});
  table.add("UnsortedSegmentSum",
            {.label = "no data", .inputs = {random_f64({0, 3}, 1), i64({0}, {}), i64({}, {2})}});
  table.add("SegmentSum", {.label = "a gap", .inputs = {random_f64({4, 3}, 1), axes({0, 0, 2, 2})}});
  table.add("SegmentSum", {.label = "no data", .inputs = {random_f64({0, 3}, 1), i64({0}, {})}});
}

}  // namespace braid::testing
