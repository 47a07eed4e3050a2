#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

using Rows = std::vector<std::int64_t>;

OpCase distinct(const char* label, const Rows& rows, std::vector<Tensor> ids) {
  return {.label = label, .inputs = std::move(ids), .attrs = {{"rows", rows}}};
}

}  // namespace

// Sizes on both sides of those where CUDA kernels change what sorts, and of what a thread of a block numbers.
BRAID_OP_CASES(distinct_rows) {
  const auto add = [&](OpCase made) { table.add("braid.DistinctRows", std::move(made)); };
  add(distinct("one table", {5}, {axes({4, 0, 4, 1, 0, 0})}));
  add(distinct("tables, types and shapes of ids", {5, 3, 7},
               {axes({4, 0, 4}), i64({2, 2}, {2, 2, 0, 2}), i64({3, 1}, {6, 0, 6})}));
  add(distinct("no ids", {5}, {i64({0}, {})}));
  add(distinct("some of nothing", {4, 3, 1}, {i64({0}, {}), axes({2, 0}), axes({0, 0, 0})}));
  add(distinct("one row", {1}, {random_i64({3000}, 1, 0, 1)}));
  add(distinct("few rows", {3, 8}, {random_i64({1024}, 2, 0, 3), random_i64({4096}, 3, 0, 8)}));
  add(distinct("most of them once", {1 << 30}, {random_i64({1025}, 4, 0, 1 << 30)}));
  add(distinct("a block's most", {100'000, 70},
               {random_i64({16'384}, 5, 0, 100'000), random_i64({9000}, 6, 0, 70)}));
  add(distinct(
      "many ids", {50'000, 9, 20'000},
      {random_i64({16'385}, 7, 0, 50'000), i64({3}, {8, 0, 8}), random_i64({7, 100}, 8, 0, 20'000)}));
  OpCase tables = distinct("many tables", {}, {});
  Rows rows;
  for (int i = 0; i < 130; ++i) {
    rows.push_back(20 + i);
    tables.inputs.push_back(random_i64({7 + i}, static_cast<std::uint64_t>(i), 0, 20 + i));
  }
  tables.attrs = {{"rows", rows}};
  add(tables);
}

}  // namespace braid::testing
