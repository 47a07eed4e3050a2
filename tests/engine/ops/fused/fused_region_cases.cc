#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(fused_region) {
  const auto add = [&](const char* label, const char* program, std::vector<Tensor> inputs) {
    // A program names its types, so there is no variant of another type; it is made after differentiation.
    table.add("braid.Fused", {.label = label,
                              .inputs = std::move(inputs),
                              .attrs = {{"program", program}},
                              .numeric_gradient = false,
                              .float32_tolerance = 0});
  };
  add("elementwise, a row that all rows share",
      "region 1 1200\nin float64 full 1200:1\nin float64 full 40:0,30:1\napply float64 full Mul 0 1\n"
      "apply float64 full Tanh 2\nout 3 40,30\n",
      {random_f64({40, 30}, 1), random_f64({30}, 2)});
  add("softmax of rows, and their largest elements",
      "region 70 33\nin float64 full 2310:1\nreduce float64 max 0\napply float64 full Sub 0 1\n"
      "apply float64 full Exp 2\nreduce float64 sum 3\napply float64 full RealDiv 3 4\nout 1 70,1\nout 5 "
      "70,33\n",
      {random_f64({70, 33}, 1)});
  add("rows longer than a tile",
      "region 5 3000\nin float64 full 15000:1\nin float64 row 5:1\napply float64 full Add 0 1\nreduce "
      "float64 sum 2\n"
      "out 2 5,3000\nout 3 5\n",
      {random_f64({5, 3000}, 1), random_f64({5, 1}, 2)});
  add("sums of columns, of what is an output and of what is not",
      "region 70 33\nin float64 full 2310:1\nin float64 row 70:1\napply float64 full Mul 0 1\napply float64 "
      "full "
      "Tanh 2\ncolumns float64 2\nreduce float64 sum 3\ncolumns float64 3\nout 2 70,33\nout 4 33\nout 5 "
      "70\nout 6 "
      "33\n",
      {random_f64({70, 33}, 1), random_f64({70, 1}, 2)});
  add("sums of few columns",
      "region 3000 3\nin float64 full 9000:1\napply float64 full Square 0\ncolumns float64 1\n"
      "out 2 3\n",
      {random_f64({3000, 3}, 1)});
  add("sums of many columns",
      "region 40 1030\nin float64 full 41200:1\napply float64 full Square 0\ncolumns "
      "float64 1\nreduce float64 max 1\nout 2 1030\nout 3 40\n",
      {random_f64({40, 1030}, 1)});
  add("what pieces of rows add up to, beside running sums",
      "region 600 7\nin float64 full 4200:1\nin float64 row 600:1\napply float64 full Mul 0 1\nscan float64 "
      "sum 2 60 last\nscan float64 sum 2 60 reverse\nscan float64 max 4 60 last\nscan float64 min 2 60 "
      "last\nscan float64 prod 2 60 last\nout 2 600,7\nout 3 10,7\nout 5 10,1,7\nout 6 70\nout 7 10,7\n",
      {random_f64({600, 7}, 1), random_f64({600, 1}, 2)});
  add("no elements", "region 0 8\nin float64 full 0:1\napply float64 full Neg 0\nout 1 0,8\n",
      {random_f64({0, 8}, 1)});
}

}  // namespace braid::testing
