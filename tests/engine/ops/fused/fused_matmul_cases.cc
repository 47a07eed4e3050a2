#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(fused_matmul) {
  struct Size {
    const char* label;
    std::int64_t m, n, k;
  };
  for (const Size& s : {Size{"small", 3, 4, 5}, Size{"one column", 6, 1, 5}, Size{"layer", 128, 96, 200},
                        Size{"odd sizes", 77, 33, 19}})
    for (const bool relu : {false, true})
      for (const bool tb : {false, true})
        table.add("braid.FusedMatMul",
                  {.label = std::string(s.label) + (relu ? ", relu" : "") + (tb ? ", b transposed" : ""),
                   .inputs = {random_f64({s.m, s.k}, 1),
                              random_f64(tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2), random_f64({s.n}, 3)},
                   .attrs = {{"transpose_b", tb}, {"relu", relu}}});
  // Few columns of lanes that share a.
  for (const bool relu : {false, true})
    table.add("braid.FusedMatMul", {.label = std::string("gates") + (relu ? ", one bias, relu" : ""),
                                    .inputs = {random_f64({70, 200}, 4), random_f64({5, 200, 7}, 5),
                                               random_f64(relu ? Shape{7} : Shape{5, 7}, 6)},
                                    .attrs = {{"relu", relu}}});
  table.add("braid.FusedMatMul",
            {.label = "lanes of one column",
             .inputs = {random_f64({2, 8, 2}, 4), random_f64({2, 2, 1}, 5), random_f64({2, 1}, 6)}});
  // Lanes: each operand the lanes' own, or one for all.
  for (const std::int64_t n : {7, 32})
    for (const bool own_a : {false, true})
      for (const bool own_b : {false, true})
        for (const bool own_bias : {false, true}) {
          if (!own_a && !own_b) continue;
          const auto lanes = [](bool own, Shape shape) {
            if (!own) return shape;
            std::vector<std::int64_t> dims{5};
            dims.insert(dims.end(), shape.dims().begin(), shape.dims().end());
            return Shape(std::move(dims));
          };
          table.add("braid.FusedMatMul",
                    {.label = "lanes of " + std::to_string(n) + (own_a ? ", a" : "") + (own_b ? ", b" : "") +
                              (own_bias ? ", bias" : ""),
                     .inputs = {random_f64(lanes(own_a, {6, 12}), 4), random_f64(lanes(own_b, {12, n}), 5),
                                random_f64(lanes(own_bias, {n}), 6)},
                     .attrs = {{"relu", own_bias}, {"joined", n == 32 ? own_a : own_b}}});
        }
}

}  // namespace braid::testing
