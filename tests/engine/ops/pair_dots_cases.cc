#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

namespace {

std::vector<std::int64_t> below_diagonal(std::int64_t n) {
  std::vector<std::int64_t> pairs;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < i; ++j) pairs.push_back(i * n + j);
  return pairs;
}

}  // namespace

void cases_pair_dots(OpCaseTable& table) {
  const auto add = [&](const char* label, const Shape& x, std::vector<std::int64_t> pairs) {
    const Shape dy{x[0], static_cast<std::int64_t>(pairs.size())};
    table.add("braid.PairDots", {.label = label,
                                 .inputs = {random_f64(x, 1)},
                                 .attrs = {{"pairs", pairs}},
                                 .float32_tolerance = 1e-4});
    table.add("braid.PairDotsGrad", {.label = label,
                                     .inputs = {random_f64(dy, 2), random_f64(x, 3)},
                                     .attrs = {{"pairs", pairs}},
                                     .float32_tolerance = 1e-4});
  };
  add("dlrm", {50, 27, 16}, below_diagonal(27));
  add("many examples", {9000, 5, 8}, below_diagonal(5));
  add("with the diagonal, in any order", {3, 3, 4}, {8, 1, 4, 5, 0, 2});
  add("thirty-two vectors", {7, 32, 32}, below_diagonal(32));
  add("wide vectors", {33, 9, 64}, below_diagonal(9));
  add("a width of no kernel", {4, 6, 5}, below_diagonal(6));
  add("one vector", {6, 1, 16}, {0});
  add("no pairs", {6, 4, 16}, {});
  add("no examples", {0, 4, 16}, below_diagonal(4));
}

}  // namespace braid::testing
