#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(outer_products) {
  const auto add = [&](const char* label, unsigned terms, std::int64_t examples, std::int64_t rows,
                       std::int64_t columns) {
    std::vector<Tensor> inputs;
    for (unsigned i = 0; i < terms; ++i) inputs.push_back(random_f64({examples, 1, rows}, 1 + i));
    for (unsigned i = 0; i < terms; ++i) inputs.push_back(random_f64({examples, 1, columns}, 101 + i));
    table.add("braid.SumOfOuterProducts", {.label = label, .inputs = inputs, .float32_tolerance = 1e-5});
  };
  const auto add_lanes = [&](const char* label, std::int64_t lanes, std::int64_t examples, std::int64_t rows,
                             std::int64_t columns) {
    table.add("braid.SumOfOuterProducts", {.label = label,
                                           .inputs = {random_f64({lanes, examples, 1, rows}, 1),
                                                      random_f64({lanes, examples, 1, columns}, 2)},
                                           .float32_tolerance = 1e-5});
  };
  add("gates of experts", 4, 70, 8, 256);
  add("one term", 1, 9, 3, 20);
  add("many rows and terms", 30, 11, 19, 12);
  add("columns of more than a block", 2, 5, 4, 2052);
  add("columns of no kernel", 2, 6, 4, 7);
  add("no examples", 2, 0, 4, 8);
  add_lanes("lanes of gates", 4, 70, 8, 256);
  add_lanes("lanes, odd numbers", 3, 7, 5, 12);
  add_lanes("lanes of no kernel", 40, 5, 2, 8);
}

}  // namespace braid::testing
