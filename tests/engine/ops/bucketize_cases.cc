#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

void cases_bucketize(OpCaseTable& table) {
  const std::vector<double> boundaries{-0.5, 0, 0.25, 2};
  const AttrMap attrs{{"boundaries", boundaries}};
  table.add("Bucketize", {.label = "matrix", .inputs = {random_f64({3, 5}, 1)}, .attrs = attrs});
  table.add("Bucketize", {.label = "several blocks", .inputs = {random_f64({20000}, 1)}, .attrs = attrs});
  table.add("Bucketize", {.label = "int64", .inputs = {i64({4}, {-1, 0, 2, 3})}, .attrs = attrs});
  table.add("Bucketize", {.label = "no boundaries", .inputs = {axes({1, 2})}});
}

}  // namespace braid::testing
