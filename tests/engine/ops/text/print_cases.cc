#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(print) {
  const std::string words[] = {"all", "well"}, nothing[] = {""};
  table.add("Assert",
            {.label = "holds", .inputs = {bools({}, {true}), Tensor::strings({2}, words), f64({1}, {1})}});
  table.add("Print",
            {.label = "silent", .inputs = {random_f64({2, 3}, 1), axes({1, 2})}, .attrs = {{"first_n", 0}}});
  table.add("PrintV2",
            {.label = "nothing", .inputs = {Tensor::strings({}, nothing)}, .attrs = {{"end", ""}}});
}

}  // namespace braid::testing
