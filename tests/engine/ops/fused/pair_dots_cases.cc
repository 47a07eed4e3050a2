#include <algorithm>

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

BRAID_OP_CASES(pair_dots) {
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
  const auto beside = [&](const char* label, const Shape& x, std::int64_t before, std::int64_t width) {
    const std::vector<std::int64_t> pairs = below_diagonal(x[1]);
    table.add("braid.PairDots", {.label = label,
                                 .inputs = {random_f64(x, 4), random_f64({x[0], before}, 5)},
                                 .attrs = {{"pairs", pairs}, {"width", width}},
                                 .float32_tolerance = 1e-4});
    const std::int64_t end = before + static_cast<std::int64_t>(pairs.size());
    table.add("braid.PairDotsGrad",
              {.label = label,
               .inputs = {random_f64({x[0], std::max(end, width)}, 6), random_f64(x, 7)},
               .attrs = {{"pairs", pairs}, {"offset", before}},
               .float32_tolerance = 1e-4});
  };
  beside("beside other columns", {65, 27, 16}, 16, 0);
  beside("beside other columns, padded", {65, 27, 16}, 16, 368);
  beside("beside no columns, padded", {9, 3, 8}, 0, 40);
  beside("beside many columns", {5, 2, 4}, 70, 72);
  const auto apart = [&](const char* label, std::int64_t n, std::int64_t rows, std::int64_t width,
                         bool beside_columns) {
    const std::vector<std::int64_t> pairs = below_diagonal(n);
    std::vector<Tensor> vectors;
    for (std::int64_t i = 0; i < n; ++i)
      vectors.push_back(random_f64({rows, width}, 10 + static_cast<unsigned>(i)));
    std::vector<Tensor> inputs = vectors;
    if (beside_columns) inputs.push_back(random_f64({rows, 5}, 8));
    table.add("braid.PairDots", {.label = label,
                                 .inputs = inputs,
                                 .attrs = {{"pairs", pairs}, {"vectors", n}},
                                 .float32_tolerance = 1e-4});
    inputs = {random_f64({rows, static_cast<std::int64_t>(pairs.size())}, 9)};
    inputs.insert(inputs.end(), vectors.begin(), vectors.end());
    table.add("braid.PairDotsGrad",
              {.label = label, .inputs = inputs, .attrs = {{"pairs", pairs}}, .float32_tolerance = 1e-4});
    inputs[0] = random_f64({rows, width + static_cast<std::int64_t>(pairs.size())}, 9);
    table.add("braid.PairDotsGrad", {.label = std::string(label) + ", columns added",
                                     .inputs = inputs,
                                     .attrs = {{"pairs", pairs}, {"offset", width}, {"columns_to", n - 1}},
                                     .float32_tolerance = 1e-4});
  };
  apart("vectors apart", 27, 40, 16, false);
  apart("vectors apart, beside other columns", 6, 130, 32, true);
  apart("vectors of four", 9, 21, 4, true);
  add("no examples", {0, 4, 16}, below_diagonal(4));
}

}  // namespace braid::testing
