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

  const auto add_joined = [&](const char* label, const Shape& shape) {
    table.add(
        "braid.JoinedReluBiasGrad",
        {.label = label, .inputs = {random_f64(shape, 1), random_f64(shape, 2)}, .float32_tolerance = 1e-4});
  };
  add_joined("small", {6, 5, 7});
  add_joined("layers", {256, 8, 128});
  add_joined("one lane", {40, 1, 70});
  add_joined("no rows", {0, 3, 8});
  add_joined("many chunks", {5000, 2, 68});

  const auto add_head = [&](const char* label, const Shape& y, const Shape& g, const Shape& w, bool joined) {
    table.add("braid.ReluHeadGrad", {.label = label,
                                     .inputs = {random_f64(g, 1), random_f64(w, 2), random_f64(y, 3)},
                                     .attrs = {{"joined", joined}},
                                     .float32_tolerance = 1e-4});
  };
  add_head("small", {3, 4}, {3, 1}, {4, 1}, false);
  add_head("one column", {9, 1}, {9, 1}, {1, 1}, false);
  add_head("layer", {2048, 256}, {2048, 1}, {256, 1}, false);
  add_head("many chunks", {9000, 65}, {9000, 1}, {65, 1}, false);
  add_head("no rows", {0, 5}, {0, 1}, {5, 1}, false);
  add_head("lanes", {4, 512, 128}, {4, 512, 1}, {4, 128, 1}, false);
  add_head("odd lanes", {3, 50, 7}, {3, 50, 1}, {3, 7, 1}, false);
  add_head("joined lanes", {256, 8, 128}, {256, 1}, {1024, 1}, true);
  add_head("odd joined lanes", {50, 3, 7}, {50, 1}, {21, 1}, true);
}

}  // namespace braid::testing
