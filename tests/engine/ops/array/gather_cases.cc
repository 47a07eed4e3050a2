#include <fmt/format.h>

#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(gather) {
  const Tensor rows = random_f64({4, 3}, 1), cube = random_f64({2, 4, 3}, 2);
  const Tensor repeated = axes({3, 0, 3});
  for (const char* op : {"Gather", "braid.GatherOrZero"}) {
    table.add(op, {.label = "duplicates", .inputs = {rows, repeated}});
    table.add(op, {.label = "matrix of indices", .inputs = {rows, i64({2, 2}, {1, 1, 0, 2})}});
    table.add(op, {.label = "no indices", .inputs = {rows, i32({0}, {})}});
    table.add(op, {.label = "scalar index", .inputs = {rows, i32({}, {2})}});
  }
  table.add("braid.GatherOrZero", {.label = "negative", .inputs = {rows, axes({-1, 2, -7})}});
  table.add("GatherV2", {.label = "first axis", .inputs = {cube, axes({1, 1, 0}), i32({}, {0})}});
  table.add("GatherV2", {.label = "middle axis", .inputs = {cube, repeated, i32({}, {1})}});
  table.add("GatherV2", {.label = "last axis", .inputs = {cube, i64({2, 1}, {2, 2}), i64({}, {-1})}});
  table.add("ResourceGather", {.label = "duplicates",
                               .inputs = {rows, repeated},
                               .attrs = {{"dtype", DType::Float64}},
                               .variables = {0},
                               .float32_tolerance = 0});  // dtype says float64
  table.add("ResourceGather", {.label = "matrix of indices",
                               .inputs = {rows, i64({2, 2}, {1, 1, 0, 2})},
                               .attrs = {{"dtype", DType::Float64}},
                               .variables = {0},
                               .float32_tolerance = 0});
  table.add("braid.ResourceGatherOrZero", {.label = "negative",
                                           .inputs = {rows, axes({-1, 2, -7})},
                                           .attrs = {{"dtype", DType::Float64}},
                                           .variables = {0},
                                           .float32_tolerance = 0});
  table.add("braid.GatherGrad", {.label = "middle axis",
                                 .inputs = {random_f64({2, 3, 3}, 3), repeated, cube, i32({}, {1})},
                                 .no_gradient_inputs = {2}});
  table.add("braid.GatherGrad", {.label = "many blocks",
                                 .inputs = {random_f64({9000, 12}, 4), random_i64({9000}, 5, 0, 3000),
                                            random_f64({3000, 12}, 6), i32({}, {0})},
                                 .numeric_gradient = false});  // too many elements; the rule is the same
  table.add("braid.GatherGrad", {.label = "known indices",
                                 .inputs = {random_f64({2, 3, 3}, 3), repeated, cube, i32({}, {1})},
                                 .known_inputs = {1},
                                 .no_gradient_inputs = {2}});
  for (const std::int64_t channels : {5, 16})  // a GPU takes 16 bytes of a row at once where it can
    for (const int axis : {1, 2})
      table.add("braid.GatherGrad",
                {.label = fmt::format("images made larger, {} channels, axis {}", channels, axis),
                 .inputs = {random_f64({2, axis == 1 ? 6 : 3, axis == 2 ? 6 : 3, channels}, 3),
                            axes({0, 0, 1, 1, 2, 2}), random_f64({2, 3, 3, channels}, 4), i32({}, {axis})},
                 .known_inputs = {1},
                 .no_gradient_inputs = {2}});
  table.add("braid.GatherGrad", {.label = "many known indices, last axis",
                                 .inputs = {random_f64({300, 351}, 4), random_i64({351}, 5, 0, 729),
                                            random_f64({300, 729}, 6), i32({}, {1})},
                                 .known_inputs = {1},
                                 .numeric_gradient = false});  // too many elements; the rule is the same
  table.add("GatherV2", {.label = "many rows of 16",
                         .inputs = {random_f64({500, 16}, 7), random_i64({2, 700}, 8, 0, 500), i32({}, {0})},
                         .numeric_gradient = false});  // too many elements; the rule is the same
}

}  // namespace braid::testing
