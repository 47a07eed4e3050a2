#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(relu_input_grad) {
  const auto add = [&](const char* label, std::int64_t m, std::int64_t n, std::int64_t k) {
    table.add("braid.ReluInputGrad",
              {.label = label,
               .inputs = {random_f64({m, n}, 1), random_f64({m, n}, 2), random_f64({m, k}, 3)},
               .float32_tolerance = 1e-4});
  };
  add("small", 3, 4, 2);
  add("one of each", 1, 1, 1);
  add("no rows", 0, 5, 3);
  add("no columns", 4, 0, 3);
  add("no inputs", 7, 6, 0);
  add("dense features", 2048, 512, 13);
  add("most inputs", 700, 68, 16);
  add("odd", 1501, 131, 7);
  add("many chunks", 20000, 36, 5);
  add("more than a thread keeps", 70, 40, 17);
}

}  // namespace braid::testing
