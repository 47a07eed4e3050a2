#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

void cases_relu_bias_grad(OpCaseTable& table) {
  const auto add = [&](const char* label, const Shape& shape) {
    table.add(
        "braid.ReluBiasGrad",
        {.label = label, .inputs = {random_f64(shape, 1), random_f64(shape, 2)}, .float32_tolerance = 1e-4});
  };
  add("small", {3, 4});
  add("one column", {9, 1});
  add("one row", {1, 70});
  add("layer", {256, 128});
  add("many rows", {3000, 65});
  add("no rows", {0, 5});
  add("lanes", {5, 6, 7});
  add("lanes of layers", {8, 256, 128});
  add("lanes of many rows", {3, 1500, 33});
  add("one lane", {1, 40, 70});
  add("many chunks", {9000, 68});
  add("lanes of many chunks", {2, 5000, 128});
}

}  // namespace braid::testing
