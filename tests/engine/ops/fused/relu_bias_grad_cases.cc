#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(relu_bias_grad) {
  const auto add_layer = [&](const char* op, const char* label, const Shape& shape,
                             const std::string& columns) {
    AttrMap attrs;
    if (!columns.empty()) attrs.set("columns", columns);
    table.add(op, {.label = label,
                   .inputs = {random_f64(shape, 1), random_f64(shape, 2)},
                   .attrs = attrs,
                   .float32_tolerance = 1e-4});
  };
  const auto add = [&](const char* label, const Shape& shape) {
    add_layer("braid.ReluBiasGrad", label, shape, "");
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
    add_layer("braid.JoinedReluBiasGrad", label, shape, "");
  };
  add_joined("small", {6, 5, 7});
  add_joined("layers", {256, 8, 128});
  add_joined("one lane", {40, 1, 70});
  add_joined("no rows", {0, 3, 8});
  add_joined("many chunks", {5000, 2, 68});

  const auto add_head = [&](const char* label, const Shape& y, const Shape& g, const Shape& w, bool joined,
                            const std::string& columns = "") {
    table.add("braid.ReluHeadGrad", {.label = label,
                                     .inputs = {random_f64(g, 1), random_f64(w, 2), random_f64(y, 3)},
                                     .attrs = {{"joined", joined}, {"columns", columns}},
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

  const auto add_columns = [&](const char* label, const Shape& shape) {
    add_layer("braid.ReluBiasGradColumns", label, shape, "");
    add_layer("braid.ReluBiasGrad", label, shape, "also");
  };
  add_columns("columns, small", {3, 4});
  add_columns("columns, one row", {1, 70});
  add_columns("columns, no rows", {0, 5});
  add_columns("columns, odd", {67, 131});
  add_columns("columns, layer", {1024, 132});
  add_columns("columns, many chunks", {9000, 68});
  add_columns("columns, lanes", {8, 256, 128});
  add_columns("columns, odd lanes", {3, 1501, 33});
  for (const char* columns : {"only", "also"}) {
    add_layer("braid.JoinedReluBiasGrad", "columns, layers", {256, 8, 128}, columns);
    add_layer("braid.JoinedReluBiasGrad", "columns, odd", {77, 3, 65}, columns);
    add_head("columns, layer", {2048, 256}, {2048, 1}, {256, 1}, false, columns);
    add_head("columns, odd lanes", {3, 50, 7}, {3, 50, 1}, {3, 7, 1}, false, columns);
    add_head("columns, joined lanes", {256, 8, 128}, {256, 1}, {1024, 1}, true, columns);
  }
}

}  // namespace braid::testing
