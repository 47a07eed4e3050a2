#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(hot_rows) {
  const std::vector<std::int64_t> hot{2, 5, 90};
  table.add("braid.SplitHotIds",
            {.label = "some", .inputs = {i64({2, 3}, {5, 0, 90, -1, 2, 5})}, .attrs = {{"hot", hot}}});
  table.add("braid.SplitHotIds",
            {.label = "narrow", .inputs = {i32({3}, {1, 2, 3})}, .attrs = {{"hot", hot}}});
  table.add("braid.SplitHotIds", {.label = "none is hot", .inputs = {i32({2}, {1, 2})}});
  table.add("braid.SplitHotIds", {.label = "no ids", .inputs = {i64({0}, {})}, .attrs = {{"hot", hot}}});
  const auto rows = [&](const char* label, std::vector<Tensor> inputs) {
    table.add("braid.HotRows", {.label = label, .inputs = std::move(inputs), .variables = {0}});
  };
  rows("some", {random_f64({3, 2}, 1), random_f64({2, 2, 2}, 2), i64({2, 2}, {-1, 2, 0, -1})});
  rows("all", {random_f64({2, 3}, 1), random_f64({3, 3}, 2), i32({3}, {1, 1, 0})});
  rows("no ids", {random_f64({2, 3}, 1), random_f64({0, 3}, 2), i32({0}, {})});
  rows("many", {random_f64({900, 7}, 1), random_f64({5000, 7}, 2), random_i64({5000}, 3, -900, 900)});
}

}  // namespace braid::testing
