#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(sparse_dense) {
  table.add("SparseToDense",
            {.label = "matrix",
             .inputs = {i32({2, 2}, {0, 1, 1, 2}), axes({2, 3}), f64({2}, {5, 6}), f64({}, {-1})}});
  table.add("SparseToDense",
            {.label = "one value", .inputs = {i64({2}, {0, 3}), i64({1}, {4}), i32({}, {1}), i32({}, {0})}});
  table.add("SparseToDense",
            {.label = "scalar index", .inputs = {i32({}, {2}), axes({4}), i32({}, {1}), i32({}, {0})}});
  table.add("SparseToDense", {.label = "repeated, out of order",
                              .inputs = {axes({3, 0, 3}), axes({5}), f64({3}, {1, 2, 3}), f64({}, {0})},
                              .attrs = {{"validate_indices", false}}});
  table.add("SparseToDense",
            {.label = "bools", .inputs = {axes({1, 2}), axes({4}), bools({}, {true}), bools({}, {false})}});
  const auto many = random_i64({3000, 2}, 5, 0, 40);
  table.add("SparseTensorDenseMatMul",
            {.label = "many terms",
             .inputs = {many, random_f64({3000}, 1), i64({2}, {40, 41}), random_f64({41, 9}, 2)},
             .numeric_gradient = false});
  table.add("SparseTensorDenseMatMul",
            {.label = "int32",
             .inputs = {i32({2, 2}, {0, 1, 2, 0}), axes({2, -3}), axes({3, 2}), i32({2, 2}, {1, 2, 3, 4})},
             .numeric_gradient = false});
  table.add("braid.SparseMatMulGrad", {.label = "many terms, wide rows",
                                       .inputs = {many, random_f64({40, 70}, 1), random_f64({40, 70}, 2)}});
  const Tensor pairs = i64({4, 2}, {0, 1, 2, 0, 0, 3, 2, 0}), shape = i64({2}, {3, 4});
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      const AttrMap attrs{{"adjoint_a", ta}, {"adjoint_b", tb}};
      const std::int64_t inner = ta ? 3 : 4;
      const std::string label = std::string(ta ? "transposed a " : "a ") + (tb ? "transposed b" : "b");
      table.add("SparseTensorDenseMatMul", {.label = label,
                                            .inputs = {pairs, random_f64({4}, 1), shape,
                                                       random_f64(tb ? Shape{2, inner} : Shape{inner, 2}, 2)},
                                            .attrs = attrs});
      table.add("braid.SparseMatMulGrad", {.label = label,
                                           .inputs = {pairs, random_f64({ta ? 4 : 3, 2}, 1),
                                                      random_f64(tb ? Shape{2, inner} : Shape{inner, 2}, 2)},
                                           .attrs = attrs});
    }
}

}  // namespace braid::testing
