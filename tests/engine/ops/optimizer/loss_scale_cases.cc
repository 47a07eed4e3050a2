#include <limits>

#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(loss_scale) {
  const auto floats = [](const Tensor& t) { return converted(t, DType::Float32); };
  Tensor infinite = floats(random_f64({70000}, 2)), not_a_number = floats(random_f64({3, 5}, 3));
  infinite.data<float>()[69999] = std::numeric_limits<float>::infinity();
  not_a_number.data<float>()[4] = std::numeric_limits<float>::quiet_NaN();
  const Tensor finite = floats(random_f64({70001}, 1, -3e38, 3e38));
  table.add("braid.NotFinite", {.label = "finite", .inputs = {finite, floats(random_f64({0}, 4))}});
  table.add("braid.NotFinite", {.label = "infinite at the end", .inputs = {finite, infinite}});
  table.add("braid.NotFinite", {.label = "NaN", .inputs = {not_a_number}});
  const auto step = [&](const char* label, float scale, float good, float flag) {
    table.add("braid.LossScaleStep",
              {.label = label,
               .inputs = {f32({}, {scale}), f32({}, {good}), f32({}, {1}), f32({}, {0}), f32({}, {flag})},
               .attrs = {{"growth", 3}},
               .variables = {0, 1, 2}});
  };
  step("good", 1024, 0, 0);
  step("grows", 1024, 2, 0);
  step("overflow", 1024, 2, 1);
}

}  // namespace braid::testing
