#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(mirror_pad) {
  for (const char* mode : {"REFLECT", "SYMMETRIC"}) {
    const AttrMap attrs{{"mode", mode}};
    const Tensor pads = i32({2, 2}, {1, 2, 2, 0});
    table.add("MirrorPad", {.label = mode, .inputs = {random_f64({3, 4}, 1), pads}, .attrs = attrs});
    table.add("MirrorPadGrad", {.label = mode, .inputs = {random_f64({6, 6}, 1), pads}, .attrs = attrs});
    table.add("MirrorPad", {.label = std::string(mode) + " of three axes",
                            .inputs = {random_f64({2, 3, 2}, 1), i64({3, 2}, {0, 1, 1, 1, 1, 0})},
                            .attrs = attrs});
    table.add("MirrorPad", {.label = std::string(mode) + " in several blocks",
                            .inputs = {random_f64({300, 200}, 1), pads},
                            .attrs = attrs,
                            .numeric_gradient = false});  // 60,000 differences say no more than twelve
    table.add("MirrorPad", {.label = std::string(mode) + " without padding",
                            .inputs = {random_f64({0, 2}, 1), i32({2, 2}, {0, 0, 0, 0})},
                            .attrs = attrs});
  }
}

}  // namespace braid::testing
