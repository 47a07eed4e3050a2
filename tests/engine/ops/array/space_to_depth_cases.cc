#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(space_to_depth) {
  for (const char* format : {"NHWC", "NCHW"}) {
    const AttrMap attrs{{"block_size", 2}, {"data_format", format}};
    const bool last = std::string(format) == "NHWC";
    table.add("SpaceToDepth", {.label = format,
                               .inputs = {random_f64(last ? Shape{2, 4, 6, 3} : Shape{2, 3, 4, 6}, 1)},
                               .attrs = attrs});
    table.add("DepthToSpace", {.label = format,
                               .inputs = {random_f64(last ? Shape{2, 2, 3, 12} : Shape{2, 12, 2, 3}, 1)},
                               .attrs = attrs});
  }
}

}  // namespace braid::testing
