#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(segment_reduce) {
  const Tensor x = random_f64({5, 3}, 1, 0.5, 2);
  for (const char* op : {"UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"}) {
    table.add(op, {.label = "an empty segment, one row left out",
                   .inputs = {x, axes({2, -1, 2, 0, 2}), i32({}, {4})},
                   .numeric_gradient = false,  // the value of an empty segment is the type's largest or
                   .float32_tolerance = 0});   // smallest number
    table.add(op, {.label = "one row left out", .inputs = {x, axes({2, -1, 2, 0, 1}), i32({}, {3})}});
    table.add(op, {.label = "matrix of ids",
                   .inputs = {random_f64({2, 2, 3}, 1), i64({2, 2}, {1, 0, 1, 1}), i64({}, {2})}});
    table.add(op, {.label = "int32", .inputs = {i32({3}, {4, -2, 7}), axes({0, 0, 1}), i32({}, {2})}});
    table.add(op,
              {.label = "several blocks",
               .inputs = {random_f64({3000, 40}, 1, 0.9, 1.1), random_i64({3000}, 2, 0, 900), i32({}, {900})},
               .numeric_gradient = false,  // 120,000 differences say no more than 15
               .float32_tolerance = 0});
  }
  table.add("UnsortedSegmentMean", {.label = "an empty segment, one row left out",
                                    .inputs = {x, axes({2, -1, 2, 0, 2}), i32({}, {4})}});
  for (const char* op : {"SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd"}) {
    table.add(op, {.label = "a gap", .inputs = {x, axes({0, 0, 2, 2, 2})}});
    table.add(op, {.label = "no data", .inputs = {random_f64({0, 3}, 1), i64({0}, {})}});
    table.add(op, {.label = "int64", .inputs = {i64({3}, {4, -2, 7}), axes({0, 0, 1})}});
  }
  for (const char* op : {"UnsortedSegmentProd"}) {
    table.add(op, {.label = "with zeros",
                   .inputs = {f64({6}, {2, 0, 3, 0, 0, 5}), axes({0, 0, 0, 1, 1, 1}), i32({}, {2})}});
  }
}

}  // namespace braid::testing
