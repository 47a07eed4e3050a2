#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(strided_slice) {
  const Tensor x = random_f64({3, 4, 2}, 1);
  const auto add = [&](const char* label, Tensor begin, Tensor end, Tensor strides, AttrMap masks) {
    table.add("StridedSlice",
              {.label = label, .inputs = {x, begin, end, strides}, .attrs = std::move(masks)});
  };
  add("plain", axes({0, 1, 0}), axes({2, 3, 2}), axes({1, 1, 1}), {});
  add("strides of both signs", axes({2, 3, 0}), axes({0, -4, 2}), axes({-1, -2, 1}), {});
  add("open ends", axes({7, 1}), axes({7, 2}), axes({1, 1}), {{"begin_mask", 1}, {"end_mask", 1}});
  add("open ends, backwards", axes({0}), axes({0}), axes({-1}), {{"begin_mask", 1}, {"end_mask", 1}});
  add("one index", axes({1, -1}), axes({2, 0}), axes({1, 1}), {{"shrink_axis_mask", 3}});
  add("new axis", axes({0, 1}), axes({0, 3}), axes({1, 1}), {{"new_axis_mask", 1}});
  add("ellipsis", axes({0, 0, 1}), axes({2, 0, 2}), axes({1, 1, 1}),
      {{"ellipsis_mask", 2}, {"shrink_axis_mask", 4}});
  add("nothing left", axes({2}), axes({1}), axes({1}), {});
  table.add("StridedSliceGrad",
            {.label = "shrink and stride",
             .inputs = {axes({3, 4, 2}), axes({1, 3}), axes({2, 0}), axes({1, -2}), random_f64({2, 2}, 2)},
             .attrs = {{"shrink_axis_mask", 1}}});
}

}  // namespace braid::testing
