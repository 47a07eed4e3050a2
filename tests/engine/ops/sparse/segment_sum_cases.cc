#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(segment_sum) {
  table.add("UnsortedSegmentSum", {.label = "duplicates, one left out",
                                   .inputs = {random_f64({4, 3}, 1), axes({2, -1, 2, 0}), i32({}, {4})}});
  table.add("UnsortedSegmentSum",
            {.label = "matrix of ids",
             .inputs = {random_f64({2, 2, 3}, 1), i64({2, 2}, {1, 0, 1, 1}), i64({}, {2})}});
  table.add("UnsortedSegmentSum",
            {.label = "no data", .inputs = {random_f64({0, 3}, 1), i64({0}, {}), i64({}, {2})}});
  table.add("SegmentSum", {.label = "a gap", .inputs = {random_f64({4, 3}, 1), axes({0, 0, 2, 2})}});
  table.add("SegmentSum", {.label = "no data", .inputs = {random_f64({0, 3}, 1), i64({0}, {})}});
  // Segments of many rows, of none and of one, over the borders of any chunks.
  table.add("UnsortedSegmentSum",
            {.label = "long segments",
             .inputs = {random_f64({9000, 3}, 1), random_i64({9000}, 2, -1, 4), i32({}, {6})},
             .numeric_gradient = false});  // too many elements; the rule is the same
  table.add("UnsortedSegmentSum",
            {.label = "one segment of vectors",
             .inputs = {random_f64({3001}, 1), random_i64({3001}, 2, 0, 1), i32({}, {1})},
             .numeric_gradient = false});
  table.add("UnsortedSegmentSum",
            {.label = "many segments",
             .inputs = {random_f64({2049, 17}, 1), random_i64({2049}, 2, 0, 5000), i32({}, {5000})},
             .numeric_gradient = false});
}

}  // namespace braid::testing
