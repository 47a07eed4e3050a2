#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(matrix_diag) {
  const Tensor any = i32({}, {-1}), pad = f64({}, {0.5});
  table.add("MatrixDiag", {.label = "batches", .inputs = {random_f64({2, 3}, 1)}});
  table.add("MatrixDiag", {.label = "no elements", .inputs = {random_f64({2, 0}, 1)}});
  table.add("MatrixDiagPart", {.label = "more columns", .inputs = {random_f64({2, 3, 4}, 1)}});
  table.add("MatrixDiagPart", {.label = "more rows", .inputs = {random_f64({4, 2}, 1)}});
  table.add("MatrixSetDiag",
            {.label = "batches", .inputs = {random_f64({2, 3, 4}, 1), random_f64({2, 3}, 2)}});
  table.add("Diag", {.label = "a matrix", .inputs = {random_f64({2, 3}, 1)}});
  table.add("DiagPart", {.label = "a matrix", .inputs = {random_f64({2, 3, 2, 3}, 1)}});
  table.add("DiagPart", {.label = "no elements", .inputs = {random_f64({0, 0}, 1)}});

  for (const char* version : {"V2", "V3"}) {
    const std::string diag = std::string("MatrixDiag") + version;
    const std::string part = std::string("MatrixDiagPart") + version;
    const std::string set = std::string("MatrixSetDiag") + version;
    table.add(diag, {.label = "one above", .inputs = {random_f64({2, 3}, 1), i32({}, {1}), any, any, pad}});
    table.add(diag, {.label = "a band in a wide matrix",
                     .inputs = {random_f64({2, 4, 3}, 1), axes({-2, 1}), i32({}, {4}), i32({}, {3}), pad}});
    table.add(diag, {.label = "no elements", .inputs = {random_f64({2, 0}, 1), axes({0}), any, any, pad}});
    table.add(part, {.label = "one below", .inputs = {random_f64({2, 3, 4}, 1), axes({-1}), pad}});
    table.add(part, {.label = "a band", .inputs = {random_f64({2, 4, 3}, 1), axes({-3, 1}), pad}});
    table.add(part, {.label = "no elements", .inputs = {random_f64({2, 0, 3}, 1), i32({}, {0}), pad}});
    table.add(set, {.label = "one above",
                    .inputs = {random_f64({2, 3, 3}, 1), random_f64({2, 2}, 2), i32({}, {1})}});
    table.add(set,
              {.label = "a band", .inputs = {random_f64({3, 4}, 1), random_f64({4, 3}, 2), axes({-1, 2})}});
  }
  for (const char* align : {"LEFT_LEFT", "LEFT_RIGHT", "RIGHT_LEFT", "RIGHT_RIGHT"}) {
    table.add("MatrixDiagV3", {.label = align,
                               .inputs = {random_f64({4, 3}, 1), axes({-2, 1}), any, any, pad},
                               .attrs = {{"align", std::string(align)}}});
    table.add("MatrixDiagPartV3", {.label = align,
                                   .inputs = {random_f64({3, 4}, 1), axes({-2, 2}), pad},
                                   .attrs = {{"align", std::string(align)}}});
    table.add("MatrixSetDiagV3", {.label = align,
                                  .inputs = {random_f64({3, 4}, 1), random_f64({5, 3}, 2), axes({-2, 2})},
                                  .attrs = {{"align", std::string(align)}}});
  }
  // 90,000 differences say no more than 40.
  const OpCase blocks{.label = "several blocks", .numeric_gradient = false};
  OpCase large = blocks;
  large.inputs = {random_f64({300}, 1), any, any, any, pad};
  table.add("MatrixDiagV3", large);
  large.inputs = {random_f64({300, 300}, 1), axes({-150, 150}), pad};
  table.add("MatrixDiagPartV3", large);
  large.inputs = {random_f64({300, 300}, 1), random_f64({300}, 2), i32({}, {0})};
  table.add("MatrixSetDiagV3", large);
}

}  // namespace braid::testing
