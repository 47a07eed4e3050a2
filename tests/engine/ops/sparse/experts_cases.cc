#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(experts) {
  const auto layer = [](std::int64_t experts, std::int64_t groups, double factor) {
    return AttrMap{{"experts", experts}, {"groups", groups}, {"capacity_factor", factor}};
  };
  const auto route = [&](const char* label, Tensor choices, AttrMap attrs) {
    table.add("braid.RouteToExperts",
              {.label = label, .inputs = {std::move(choices)}, .attrs = std::move(attrs)});
  };
  route("two choices, some dropped", i32({4, 2}, {0, 1, 0, 2, 0, 1, 2, 0}), layer(3, 1, 1));
  route("groups that are not equal", i32({5, 1}, {1, 1, 0, 1, 1}), layer(2, 2, 1));
  route("more groups than tokens", i32({2, 1}, {1, 0}), layer(2, 4, 1));
  route("nothing is dropped", i32({3, 1}, {1, 1, 1}), layer(2, 1, 0));
  route("no tokens", i32({0, 2}, {}), layer(2, 1, 1));
  route("many", converted(random_i64({3000, 1}, 5, 0, 7), DType::Int32), layer(7, 1, 1.1));

  // Slots of two groups of two tokens for three experts, two slots each.
  const Tensor slots = i32({4, 2}, {0, 4, 1, 8, 2, -1, 10, 3});
  const AttrMap attrs = layer(3, 2, 1.5);
  const Tensor x = random_f64({4, 3}, 1), y = random_f64({3, 4, 3}, 2), weights = random_f64({4, 2}, 3);
  table.add("braid.DispatchTokens", {.label = "plain", .inputs = {x, slots}, .attrs = attrs});
  table.add("braid.DispatchTokens", {.label = "weights", .inputs = {x, slots, weights}, .attrs = attrs});
  table.add("braid.CombineTokens", {.label = "plain", .inputs = {y, slots}, .attrs = attrs});
  table.add("braid.CombineTokens", {.label = "weights", .inputs = {y, slots, weights}, .attrs = attrs});
  table.add("braid.SlotDots", {.label = "two choices", .inputs = {x, y, slots}, .attrs = attrs});
  const Tensor none = i32({0, 2}, {});
  table.add("braid.DispatchTokens",
            {.label = "no tokens", .inputs = {random_f64({0, 3}, 1), none}, .attrs = attrs});
  table.add("braid.CombineTokens",
            {.label = "no tokens", .inputs = {random_f64({3, 2, 3}, 1), none}, .attrs = attrs});
  table.add("braid.SlotDots", {.label = "no tokens",
                               .inputs = {random_f64({0, 3}, 1), random_f64({3, 2, 3}, 1), none},
                               .attrs = attrs});

  // Token t has slot t of expert 0 and t of expert 1, without a capacity.
  Tensor many(DType::Int32, Shape{600, 2});
  for (std::int32_t t = 0; t < 600; ++t) {
    many.data<std::int32_t>()[2 * t] = t;
    many.data<std::int32_t>()[2 * t + 1] = 600 + (t * 7) % 600;
  }
  const Tensor wide = random_f64({600, 130}, 1), stored = random_f64({2, 600, 130}, 2),
               shares = random_f64({600, 2}, 3);
  const auto of_many = [&](const char* op, std::vector<Tensor> inputs) {
    table.add(op, {.label = "many",
                   .inputs = std::move(inputs),
                   .attrs = layer(2, 1, 0),
                   .numeric_gradient = false});  // of too many elements
  };
  of_many("braid.DispatchTokens", {wide, many, shares});
  of_many("braid.CombineTokens", {stored, many, shares});
  of_many("braid.SlotDots", {wide, stored, many});
}

}  // namespace braid::testing
