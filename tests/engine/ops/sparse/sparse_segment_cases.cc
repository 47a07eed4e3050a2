#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

/// 0, 0, 0, 1, 1, 1, 2, ...
Tensor rising(std::int64_t n) {
  Tensor ids(DType::Int64, {n});
  for (std::int64_t k = 0; k < n; ++k) ids.data<std::int64_t>()[static_cast<std::size_t>(k)] = k / 3;
  return ids;
}

}  // namespace

BRAID_OP_CASES(sparse_segment) {
  const Tensor x = random_f64({4, 3}, 1), indices = axes({3, 0, 3, 1, 2}), ids = axes({0, 0, 0, 2, 2});
  for (const std::string op : {"SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"}) {
    table.add(op, {.label = "a gap, repeated rows", .inputs = {x, indices, ids}});
    table.add(op, {.label = "nothing", .inputs = {x, i64({0}, {}), i64({0}, {})}});
    table.add(op, {.label = "several blocks",
                   .inputs = {random_f64({500, 60}, 2), random_i64({2000}, 3, 0, 500), rising(2000)},
                   .numeric_gradient = false});
    table.add(op + "WithNumSegments",
              {.label = "empty ones behind", .inputs = {x, indices, ids, i32({}, {5})}});
    table.add(op + "Grad", {.label = "a gap, repeated rows",
                            .inputs = {random_f64({3, 3}, 1), indices, ids, i32({}, {4})}});
    table.add(op + "GradV2", {.label = "a gap, repeated rows",
                              .inputs = {random_f64({3, 3}, 1), indices, ids, i32({}, {6})}});
    table.add(op + "GradV2", {.label = "nothing",
                              .inputs = {random_f64({0, 3}, 1), i64({0}, {}), i64({0}, {}), i32({}, {6})}});
  }
}

BRAID_OP_CASES(fill_empty_rows_grad) {
  table.add("SparseFillEmptyRowsGrad",
            {.label = "rows", .inputs = {i64({3}, {3, 0, 1}), random_f64({5}, 1)}});
  table.add("SparseFillEmptyRowsGrad",
            {.label = "only empty ones", .inputs = {i64({0}, {}), random_f64({2}, 1)}});
}

}  // namespace braid::testing
