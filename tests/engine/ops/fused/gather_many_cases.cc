#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(gather_many) {
  const auto f32_of = [](Shape shape, std::uint64_t seed) {
    return converted(random_f64(std::move(shape), seed), DType::Float32);
  };
  const AttrMap attrs{{"dtype", DType::Float32}};
  table.add(
      "braid.GatherMany",
      {.label = "one", .inputs = {f32_of({4, 3}, 1), axes({3, 0, 3})}, .attrs = attrs, .variables = {0}});
  table.add("braid.GatherMany",
            {.label = "widths and types of indices",
             .inputs = {f32_of({4, 3}, 1), axes({3, 0, 3}), f32_of({7}, 2), i64({2, 2}, {6, 0, 0, 1}),
                        f32_of({2, 2, 2}, 3), i64({0}, {}), f32_of({3, 5}, 4), i32({}, {2})},
             .attrs = attrs,
             .variables = {0, 2, 4, 6}});
  OpCase many{.label = "many tables", .attrs = attrs};
  for (int i = 0; i < 50; ++i) {
    many.inputs.push_back(f32_of({20 + i, 16}, static_cast<std::uint64_t>(i)));
    many.inputs.push_back(random_i64({30 + 9 * i}, static_cast<std::uint64_t>(i), 0, 20));
    many.variables.push_back(2 * i);
  }
  table.add("braid.GatherMany", many);
}

}  // namespace braid::testing
