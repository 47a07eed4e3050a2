#include <limits>

#include "engine/ops/common/index_groups.h"
#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(clip_by_norm) {
  const auto rows = [&](const char* label, Tensor indices, Tensor values, std::int64_t all) {
    table.add("braid.RowsL2Loss",
              {.label = label, .inputs = {std::move(indices), std::move(values)}, .attrs = {{"rows", all}}});
  };
  rows("duplicates", i64({4}, {2, 0, 2, 1}), f32({4, 2}, {1, 2, 3, 4, -1, 5, 0.5F, 0.25F}), 3);
  rows("int32", axes({3, 3}), f32({2}, {1, -1}), 5);
  rows("none", i64({0}, {}), f32({0, 3}, {}), 5);
  rows("many", random_i64({700}, 4, 0, 40), converted(random_f64({700, 37}, 5, -1, 1), DType::Float32), 50);
  rows("one row", random_i64({2500}, 4, 3, 4), converted(random_f64({2500, 5}, 5, -1, 1), DType::Float32), 7);
  rows("a number each", random_i64({1300}, 6, 0, 2), converted(random_f64({1300}, 7, -1, 1), DType::Float32),
       3);
  table.add("braid.RowsL2Loss", {.label = "padded",
                                 .inputs = {random_i64({300}, 8, -1, 4),
                                            converted(random_f64({300, 2, 8}, 9, -1, 1), DType::Float32)},
                                 .attrs = {{"rows", std::int64_t{5}}, {kSkipNegative, true}}});

  const auto scale = [&](const char* label, std::vector<Tensor> halves, double clip_norm, bool scaled) {
    table.add("braid.ClipScale", {.label = label,
                                  .inputs = std::move(halves),
                                  .attrs = {{"clip_norm", clip_norm}, {"scaled", scaled}}});
  };
  scale("below", {f32({}, {0.5F})}, 2, false);
  scale("above", {f32({}, {3}), f32({}, {5})}, 2, false);
  scale("scaled", {f32({}, {3}), f32({}, {5})}, 2, true);
  scale("infinite", {f32({}, {3}), f32({}, {std::numeric_limits<float>::infinity()})}, 2, false);
  scale("many", std::vector<Tensor>(300, f32({}, {0.25F})), 0.5, false);
}

}  // namespace braid::testing
