#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

Shape matrix(std::int64_t rows, std::int64_t columns, bool transposed) {
  return transposed ? Shape{columns, rows} : Shape{rows, columns};
}

}  // namespace

BRAID_OP_CASES(matmul) {
  struct Size {
    const char* label;
    std::int64_t m, n, k;
    bool gradient;
  };
  const Size sizes[] = {{"small", 3, 4, 5, true},
                        {"row vector", 1, 6, 5, true},
                        {"column vector", 6, 1, 5, true},
                        {"inner product", 1, 1, 7, true},
                        {"outer product", 4, 3, 1, true},
                        {"blocks of rows", 600, 130, 700, false},
                        {"blocks of columns", 70, 900, 500, false},
                        {"long row vector", 1, 3000, 170, false},
                        {"long column vector", 700, 1, 333, false}};
  for (const Size& s : sizes)
    for (bool ta : {false, true})
      for (bool tb : {false, true})
        table.add(
            "MatMul",
            {.label = std::string(s.label) + (ta ? ", a transposed" : "") + (tb ? ", b transposed" : ""),
             .inputs = {random_f64(matrix(s.m, s.k, ta), 1), random_f64(matrix(s.k, s.n, tb), 2)},
             .attrs = {{"transpose_a", ta}, {"transpose_b", tb}},
             .numeric_gradient = s.gradient});  // a gradient is a MatMul again
  table.add("MatMul",
            {.label = "no inner elements", .inputs = {random_f64({2, 0}, 1), random_f64({0, 3}, 2)}});
  table.add("MatMul", {.label = "no rows", .inputs = {random_f64({0, 2}, 1), random_f64({2, 3}, 2)}});
  table.add("MatMul", {.label = "int32", .inputs = {i32({2, 2}, {1, -2, 3, 4}), i32({2, 1}, {5, 6})}});
  table.add("MatMul", {.label = "int64",
                       .inputs = {i64({2, 2}, {1, -2, 3, 4}), i64({1, 2}, {5, 6})},
                       .attrs = {{"transpose_b", true}}});
}

BRAID_OP_CASES(batch_matmul) {
  const auto add = [&](const std::string& label, const char* op, Shape x, Shape y, bool adj_x, bool adj_y,
                       bool gradient = true) {
    table.add(op, {.label = label,
                   .inputs = {random_f64(std::move(x), 1), random_f64(std::move(y), 2)},
                   .attrs = {{"adj_x", adj_x}, {"adj_y", adj_y}},
                   .numeric_gradient = gradient});
  };
  for (const char* op : {"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"}) {
    add("plain", op, {2, 3, 4}, {2, 4, 2}, false, false);
    add("x transposed", op, {2, 4, 3}, {2, 4, 2}, true, false);
    add("y transposed", op, {2, 3, 4}, {2, 2, 4}, false, true);
    add("both transposed", op, {2, 4, 3}, {2, 2, 4}, true, true);
    add("two leading axes", op, {2, 3, 2, 4}, {2, 3, 4, 2}, false, false);
    add("matrices", op, {3, 4}, {4, 2}, false, false);
    add("one entry", op, {1, 3, 4}, {1, 4, 1}, false, false);
    add("several blocks", op, {600, 27, 33}, {600, 27, 33}, false, true,
        false);  // a gradient is a product again
    add("no entries", op, {0, 3, 4}, {0, 4, 2}, false, false);
  }
  // A gradient is a product again, so those of large batches are not differentiated.
  add("many outer products", "BatchMatMulV2", {700, 1, 8}, {700, 1, 130}, true, false, false);
  add("many row vectors", "BatchMatMulV2", {700, 1, 8}, {700, 8, 256}, false, false, false);
  add("many, x transposed", "BatchMatMulV2", {515, 27, 27}, {515, 27, 16}, true, false, false);
  add("many, both transposed", "BatchMatMulV2", {515, 5, 18}, {515, 7, 5}, true, true, false);
  add("many, y repeated", "BatchMatMulV2", {515, 5, 6}, {6, 7}, false, false, false);
  add("many large ones", "BatchMatMulV2", {260, 16, 64}, {260, 64, 256}, false, false, false);
  add("lanes share matrices", "BatchMatMulV2", {3, 40, 1, 8}, {40, 8, 12}, false, false, false);
  add("many lanes share large matrices", "BatchMatMulV2", {9, 21, 1, 20}, {21, 20, 260}, false, false, false);
  add("lanes share matrices, y transposed", "BatchMatMulV2", {4, 33, 1, 5}, {1, 33, 7, 5}, false, true,
      false);
  add("lanes share long vectors", "BatchMatMulV2", {4, 70, 1, 256}, {70, 8, 256}, false, true, false);
  add("lanes share vectors, odd numbers", "BatchMatMulV2", {5, 65, 1, 36}, {1, 65, 3, 36}, false, true,
      false);
  add("row vectors, y transposed", "BatchMatMulV2", {300, 1, 68}, {300, 13, 68}, false, true, false);
  add("short dot products, y transposed", "BatchMatMulV2", {67, 3, 40}, {67, 5, 40}, false, true, false);
  add("lanes share x transposed", "BatchMatMulV2", {1300, 128}, {4, 1300, 8}, true, false, false);
  add("lanes share x transposed, odd sizes", "BatchMatMulV2", {1101, 70}, {5, 1101, 7}, true, false, false);
  add("long sums of lanes", "BatchMatMulV2", {3, 1040, 33}, {3, 1040, 20}, true, false, false);
  add("long sums of lanes, odd sizes", "BatchMatMulV2", {2, 1540, 7}, {2, 1540, 5}, true, false, false);
  add("lanes share x", "BatchMatMulV2", {130, 516}, {3, 516, 5}, false, false, false);
  add("lanes share x, odd sizes", "BatchMatMulV2", {65, 1031}, {6, 1031, 3}, false, false, false);
  add("lanes share x, many rows", "BatchMatMulV2", {4300, 300}, {2, 300, 2}, false, false, false);
  add("heads share y, small", "BatchMatMulV2", {300, 4, 5, 6}, {300, 1, 6, 7}, false, false, false);
  add("heads share y", "BatchMatMulV2", {67, 4, 24, 40}, {67, 1, 36, 40}, false, true, false);
  add("groups of heads share y", "BatchMatMulV2", {33, 2, 3, 24, 40}, {33, 2, 1, 40, 36}, false, false,
      false);
  add("heads share x", "BatchMatMulV2", {65, 1, 24, 40}, {65, 3, 24, 36}, true, false, false);
  add("y repeated", "BatchMatMulV2", {3, 2, 4}, {4, 2}, false, false);
  add("x repeated", "BatchMatMulV2", {1, 2, 4}, {3, 4, 2}, false, false);
  add("both repeated", "BatchMatMulV2", {2, 1, 2, 3}, {3, 3, 2}, false, false);
  add("both repeated, transposed", "BatchMatMulV2", {2, 1, 3, 2}, {3, 2, 3}, true, true);
}

}  // namespace braid::testing
