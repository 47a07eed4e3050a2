#include <fmt/format.h>

#include <array>

#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(batch_gather) {
  const auto add = [&](const char* label, Shape params, Tensor indices, std::int32_t axis,
                       std::int64_t batch_dims) {
    table.add("braid.BatchGather",
              {.label = label,
               .inputs = {random_f64(std::move(params), 1), std::move(indices), i32({}, {axis})},
               .attrs = {{"batch_dims", batch_dims}}});
  };
  add("one index a row", {2, 4}, axes({3, 0}), 1, 1);
  add("rows, repeated", {2, 3, 2}, i32({2, 4}, {0, 2, 2, 1, 1, 1, 0, 2}), 1, 1);
  add("axes between", {2, 3, 4, 2}, i64({2, 2}, {3, 0, 1, 1}), -2, 1);
  add("two batch axes", {2, 2, 3}, i32({2, 2, 1}, {0, 1, 2, 0}), 2, 2);
  add("counted from the end", {2, 3}, i32({2, 2}, {0, 1, 2, 2}), 1, -1);
  add("no indices", {2, 3}, i32({2, 0}, {}), 1, 1);
  const Tensor many = converted(random_i64({7, 300}, 3, 0, 50), DType::Int32);
  table.add("braid.BatchGather", {.label = "many rows",
                                  .inputs = {random_f64({7, 2, 50, 8}, 1), many, i32({}, {2})},
                                  .attrs = {{"batch_dims", 1}},
                                  .numeric_gradient = false});
  table.add("braid.BatchGather",
            {.label = "bytes",
             .inputs = {bools({2, 3}, {true, false, true, false, true, true}), axes({2, 1}), i32({}, {1})},
             .attrs = {{"batch_dims", 1}},
             .numeric_gradient = false});
  table.add("braid.BatchGatherGrad",
            {.label = "many rows",
             .inputs = {random_f64({7, 2, 300, 8}, 1), many, i32({}, {2}), random_f64({7, 2, 50, 8}, 2)},
             .attrs = {{"batch_dims", 1}},
             .no_gradient_inputs = {3},
             .numeric_gradient = false});  // of too many elements
  // Rows of more and of fewer units than a warp has lanes, matrices of one and of several blocks.
  for (const auto& [batch, rows, n, width] : std::vector<std::array<std::int64_t, 4>>{
           {3, 24, 96, 48}, {2, 5, 33, 130}, {1, 700, 40, 12}, {2, 9, 1024, 1}, {2, 40, 70, 7}})
    table.add("braid.BatchGatherGrad",
              {.label = fmt::format("{} of {} rows of {}", n, rows, width),
               .inputs = {random_f64({batch, n, width}, 1),
                          converted(random_i64({batch, n}, 4, 0, rows), DType::Int32), i32({}, {1}),
                          random_f64({batch, rows, width}, 2)},
               .attrs = {{"batch_dims", 1}},
               .no_gradient_inputs = {3},
               .numeric_gradient = false});
  table.add("braid.BatchGatherGrad", {.label = "rows, repeated",
                                      .inputs = {random_f64({2, 2, 3}, 1), i32({2, 2}, {1, 1, 0, 3}),
                                                 i32({}, {1}), random_f64({2, 4, 3}, 2)},
                                      .attrs = {{"batch_dims", 1}},
                                      .no_gradient_inputs = {3}});
}

}  // namespace braid::testing
