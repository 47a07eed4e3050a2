#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(concat) {
  const Tensor a = random_f64({2, 3}, 1), b = random_f64({2, 1}, 2), c = random_f64({2, 0}, 3);
  table.add("ConcatV2", {.label = "last axis", .inputs = {a, b, c, i32({}, {-1})}});
  table.add("ConcatV2", {.label = "first axis", .inputs = {a, a, i64({}, {0})}});
  table.add("ConcatV2", {.label = "one input", .inputs = {a, i32({}, {1})}});
  table.add("Concat", {.label = "last axis", .inputs = {i32({}, {1}), a, b}});
  table.add("Concat", {.label = "middle axis",
                       .inputs = {i32({}, {1}), random_f64({2, 1, 3}, 4), random_f64({2, 2, 3}, 5)}});
  table.add("braid.SplitLike", {.label = "last axis",
                                .inputs = {i32({}, {1}), random_f64({2, 4}, 6), a, b},
                                .no_gradient_inputs = {2, 3}});
  table.add("ConcatOffset", {.label = "middle axis",
                             .inputs = {i32({}, {1}), axes({2, 3, 5}), axes({2, 4, 5}), axes({2, 1, 5})}});
  // More parts than a device copies in one launch, of widths that share no unit.
  std::vector<Tensor> parts;
  for (int i = 0; i < 40; ++i)
    parts.push_back(random_f64({3, 1 + i % 5}, static_cast<std::uint64_t>(10 + i)));
  parts.push_back(i32({}, {1}));
  table.add("ConcatV2", {.label = "forty parts", .inputs = parts, .numeric_gradient = false});
  table.add("ConcatV2", {.label = "many rows of 16 and 13",
                         .inputs = {random_f64({700, 16}, 60), random_f64({700, 13}, 61),
                                    random_f64({700, 1}, 62), i32({}, {1})},
                         .numeric_gradient = false});  // too many elements; the rule is the same
}

BRAID_OP_CASES(put_columns) {
  const auto put = [&](const char* label, Tensor x, std::vector<Tensor> parts,
                       std::vector<std::int64_t> offsets) {
    OpCase made{.label = label, .inputs = {std::move(x)}, .attrs = {{"offsets", std::move(offsets)}}};
    made.inputs.insert(made.inputs.end(), parts.begin(), parts.end());
    table.add("braid.PutColumns", made);
  };
  put("the first columns", random_f64({5, 7}, 1), {random_f64({5, 3}, 2)}, {0});
  put("between and at the end", random_f64({5, 7}, 1), {random_f64({5, 2}, 2), random_f64({5, 1}, 3)},
      {1, 6});
  put("all of them", random_f64({4, 3}, 1), {random_f64({4, 2}, 2), random_f64({4, 1}, 3)}, {0, 2});
  put("no column", random_f64({4, 3}, 1), {random_f64({4, 0}, 2)}, {1});
  put("no rows", random_f64({0, 3}, 1), {random_f64({0, 1}, 2)}, {1});
  put("wide", random_f64({700, 392}, 1), {random_f64({700, 128}, 2)}, {128});
}

}  // namespace braid::testing
