#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(resize) {
  const Tensor x = converted(random_f64({2, 3, 4, 2}, 1), DType::Float32);  // results are float32 of any type
  for (const bool corners : {false, true})
    for (const bool half : {false, true}) {
      if (corners && half) continue;
      const AttrMap attrs{{"align_corners", corners}, {"half_pixel_centers", half}};
      const std::string label = corners ? "corners" : half ? "half pixels" : "plain";
      for (const Tensor& size : {axes({7, 2}), axes({2, 9}), axes({1, 1})}) {
        table.add("ResizeBilinear", {.label = label, .inputs = {x, size}, .attrs = attrs});
        table.add("ResizeNearestNeighbor",
                  {.label = label, .inputs = {random_f64({2, 3, 4, 2}, 1), size}, .attrs = attrs});
        table.add("ResizeNearestNeighborGrad",
                  {.label = label, .inputs = {random_f64({2, 3, 4, 2}, 1), size}, .attrs = attrs});
      }
      table.add("ResizeBilinearGrad", {.label = label,
                                       .inputs = {x, converted(random_f64({2, 6, 3, 2}, 2), DType::Float32)},
                                       .attrs = attrs});
    }
  table.add("ResizeBilinear", {.label = "integers", .inputs = {i32({1, 1, 2, 1}, {3, 8}), axes({2, 4})}});
  table.add("ResizeBilinear",
            {.label = "no images",
             .inputs = {converted(random_f64({0, 2, 2, 1}, 1), DType::Float32), axes({3, 3})}});
  OpCase large{.label = "several blocks",
               .inputs = {converted(random_f64({2, 40, 50, 8}, 1), DType::Float32), axes({90, 70})},
               .numeric_gradient = false};  // 32,000 differences say no more than 48
  table.add("ResizeBilinear", large);
  table.add("ResizeNearestNeighbor", large);
}

}  // namespace braid::testing
