#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

void cases_fused_matmul(OpCaseTable& table) {
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
}

}  // namespace braid::testing
