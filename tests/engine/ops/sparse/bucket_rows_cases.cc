#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(bucket_rows) {
  const auto ids = [&](const char* label, std::vector<Tensor> inputs, AttrMap attrs) {
    table.add("braid.BucketIds", {.label = label, .inputs = std::move(inputs), .attrs = std::move(attrs)});
  };
  const Tensor few = i64({6}, {4, 0, 4, 9, 0, 7});
  ids("hashed", {few}, {{"rows", 10}, {"ranks", 3}});
  ids("two inputs", {few, i32({2, 2}, {1, 1, 9, 2})}, {{"rows", 10}, {"ranks", 2}});
  ids("owned", {few}, {{"rows", 10}, {"ranks", 3}, {"split", "owned"}, {"owner", 1}});
  ids("all", {few}, {{"rows", 10}, {"ranks", 2}, {"split", "all"}});
  ids("more elsewhere", {few}, {{"rows", 10}, {"ranks", 2}, {"most", 9}});
  ids("no ids", {i64({0}, {})}, {{"rows", 10}, {"ranks", 2}});
  const Tensor padded = i64({7}, {4, -1, 4, 9, -1, 7, -1});
  for (const char* split : {"hashed", "owned", "all"})
    ids(split, {padded, i32({2}, {-1, 3})},
        {{"rows", 10}, {"ranks", 3}, {"split", split}, {"owner", 2}, {"skip_negative", true}});
  ids("none of them", {i64({2}, {-1, -1})}, {{"rows", 10}, {"ranks", 2}, {"skip_negative", true}});
  ids("many", {random_i64({9000}, 5, 0, 3000)}, {{"rows", 3000}, {"ranks", 4}});

  const Tensor blocks = random_f64({2, 3, 2}, 1);
  table.add("braid.Unbucket", {.label = "own", .inputs = {blocks, i32({2, 2}, {5, 0, 0, 3})}});
  table.add(
      "braid.Unbucket",
      {.label = "columns", .inputs = {blocks, i32({4}, {2, 0, 0, 1})}, .attrs = {{"blocks", "columns"}}});
  table.add("braid.Unbucket", {.label = "no ids", .inputs = {blocks, i32({0}, {})}});
  table.add("braid.Unbucket",
            {.label = "many", .inputs = {random_f64({2, 900, 7}, 1), random_i64({5000}, 2, 0, 1800)}});

  constexpr std::int64_t kPlace = std::int64_t{1} << 32;
  const Tensor entries = i64({4}, {1, 2, kPlace, 3 * kPlace + 3}), values = random_f64({4, 2, 2}, 3);
  for (const char* how : {"own", "columns", "copies"})
    table.add("braid.SumBuckets", {.label = how,
                                   .inputs = {values, entries, i64({2, 4}, {0, 0, 0, 0, 0, 0, 0, 0})},
                                   .attrs = {{"blocks", how}, {"fill", true}}});
  table.add("braid.SumBuckets",
            {.label = "some of no place",
             .inputs = {values, i64({4}, {1, 2 * kPlace + 2, -1, -1}), i64({2, 4}, {0, 0, 0, 0, 0, 0, 0, 0})},
             .attrs = {{"fill", true}}});
  table.add("braid.SumBuckets", {.label = "all of no place",
                                 .inputs = {values, i64({4}, {-1, -1, -1, -1}), i64({1, 1}, {-1})},
                                 .attrs = {{"fill", true}}});
  table.add("braid.SumBuckets", {.label = "no ids",
                                 .inputs = {random_f64({0, 3}, 3), i64({0}, {}), i64({2, 0}, {})},
                                 .attrs = {{"fill", true}}});
}

}  // namespace braid::testing
