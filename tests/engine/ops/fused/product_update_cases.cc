#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(product_update) {
  table.add("braid.DescentScale", {.label = "step"});
  const auto add = [&](const char* label, const Shape& variable, const Shape& a, const Shape& b, bool ta,
                       bool tb) {
    const auto values = [](const Shape& shape, std::uint64_t seed) {
      return converted(random_f64(shape, seed), DType::Float32);
    };
    table.add("braid.ProductUpdate",
              {.label = label,
               .inputs = {values(variable, 1), f32({2}, {-0.125F, 1}), values(a, 2), values(b, 3)},
               .attrs = {{"transpose_a", ta}, {"transpose_b", tb}},
               .variables = {0},
               .float32_tolerance = 1e-4});
  };
  add("small", {3, 4}, {3, 5}, {5, 4}, false, false);
  add("gradient of weights", {64, 96}, {200, 64}, {200, 96}, true, false);
  add("b transposed", {20, 30}, {20, 17}, {30, 17}, false, true);
  add("nothing to sum", {3, 4}, {0, 3}, {0, 4}, true, false);
  add("lanes", {4, 64, 96}, {4, 128, 64}, {4, 128, 96}, true, false);
  add("odd lanes", {3, 5, 7}, {3, 9, 5}, {3, 9, 7}, true, false);
  add("lanes that share a", {4, 64, 96}, {128, 64}, {4, 128, 96}, true, false);
  add("lanes with long sums", {2, 64, 96}, {2, 4096, 64}, {2, 4096, 96}, true, false);
}

}  // namespace braid::testing
