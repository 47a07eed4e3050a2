#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

using Rows = std::vector<std::int64_t>;

OpCase of(const char* label, const Rows& rows, std::vector<Tensor> indices) {
  return {.label = label, .inputs = std::move(indices), .attrs = {{"rows", rows}}};
}

}  // namespace

// Sizes on both sides of those where CUDA kernels change what sorts and by which keys.
BRAID_OP_CASES(group_rows) {
  const auto add = [&](OpCase made) { table.add("braid.GroupRows", std::move(made)); };
  add(of("one table", {5}, {axes({4, 0, 4, 1, 0, 0})}));
  add(of("tables and types of indices", {5, 3, 7},
         {axes({4, 0, 4}), i64({4}, {2, 2, 0, 2}), i64({3}, {6, 0, 6})}));
  add(of("no indices", {5}, {i64({0}, {})}));
  add(of("some of nothing", {4, 0, 3, 1}, {i64({0}, {}), i64({0}, {}), axes({2, 0}), axes({0, 0, 0})}));
  add(of("one row", {1}, {random_i64({3000}, 1, 0, 1)}));
  add(of("every digit", {100'000}, {random_i64({2048}, 2, 0, 100'000)}));
  add(of("equal bits", {255, 256, 127},
         {random_i64({1024}, 3, 0, 255), random_i64({1025}, 4, 0, 256), random_i64({1023}, 5, 0, 127)}));
  add(of("a block's most", {100'000, 70},
         {random_i64({16'384}, 6, 0, 100'000), random_i64({9000}, 7, 0, 70)}));
  add(of("long keys", {1 << 30, 40}, {random_i64({8192}, 8, 0, 1 << 30), random_i64({33}, 9, 0, 40)}));
  add(of("long keys, many", {1 << 30}, {random_i64({8193}, 10, 0, 1 << 30)}));
  add(of("many indices", {50'000, 9, 20'000},
         {random_i64({16'385}, 11, 0, 50'000), i64({3}, {8, 0, 8}), random_i64({700}, 12, 0, 20'000)}));
  OpCase tables = of("many tables", {}, {});
  Rows rows;
  for (int i = 0; i < 130; ++i) {
    rows.push_back(20 + i);
    tables.inputs.push_back(random_i64({7 + i}, static_cast<std::uint64_t>(i), 0, 20 + i));
  }
  tables.attrs = {{"rows", rows}};
  add(tables);
  rows.insert(rows.begin() + 60, 3000);
  tables.label = "many tables, a large one";
  tables.attrs = {{"rows", rows}};
  tables.inputs.insert(tables.inputs.begin() + 60, random_i64({17'000}, 13, 0, 3000));
  add(tables);
}

}  // namespace braid::testing
