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

  // Rows 2 and 0 of a table of three; rows 1 and 0 of one of two, and one that is none of it.
  const auto entry = [](std::int64_t row, std::int64_t position) { return row << 32 | position; };
  table.add(
      "braid.RowsL2LossMany",
      {.label = "two tables",
       .inputs = {f32({3, 2}, {1, 2, 3, 4, -1, 5}), f32({3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}),
                  i64({6}, {entry(0, 1), entry(2, 0), entry(2, 2), entry(4, 5), entry(5, 3), entry(6, 4)})},
       .attrs = {{"rows", std::vector<std::int64_t>{3, 2}}}});
  Tensor named(DType::Int64, {1000});
  for (std::int64_t k = 0; k < 1000; ++k)
    named.data<std::int64_t>()[static_cast<std::size_t>(k)] = entry(k < 900 ? 3 : 4 + (k - 900) / 9, k);
  table.add("braid.RowsL2LossMany",
            {.label = "a popular row",
             .inputs = {converted(random_f64({1000, 12}, 5, -1, 1), DType::Float32), named},
             .attrs = {{"rows", std::vector<std::int64_t>{20}}}});
  table.add("braid.L2LossMany", {.label = "some",
                                 .inputs = {f32({2, 2}, {1, 2, 3, 4}), f32({}, {5}), f32({0, 3}, {}),
                                            converted(random_f64({20011}, 5, -1, 1), DType::Float32)}});
  table.add("braid.L2LossMany",
            {.label = "many", .inputs = std::vector<Tensor>(130, f32({3}, {1, -2, 0.5F}))});

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
