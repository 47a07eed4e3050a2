#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

constexpr const char* kFloat[] = {"Add",      "AddV2",    "Sub",         "Mul",
                                  "Div",      "RealDiv",  "FloorDiv",    "FloorMod",
                                  "Maximum",  "Minimum",  "Pow",         "SquaredDifference",
                                  "DivNoNan", "MulNoNan", "TruncateMod", "Mod",
                                  "Xdivy",    "Xlogy",    "Xlog1py",     "Atan2"};

bool takes_floats_only(const std::string& op) {
  for (const char* name : {"RealDiv", "DivNoNan", "MulNoNan", "Xdivy", "Xlogy", "Xlog1py", "Atan2"})
    if (op == name) return true;
  return false;
}

bool is_step(const std::string& op) { return op == "FloorDiv"; }

OpCase operands(const std::string& op, const char* label, Shape a, Shape b) {
  OpCase c{.label = label,
           // Disjoint ranges keep Maximum, Minimum and FloorMod away from their kinks.
           .inputs = {random_f64(std::move(a), 11, 2.1, 2.9), random_f64(std::move(b), 12, 1.1, 1.9)}};
  if (is_step(op)) c.no_gradient_inputs = {0, 1};
  return c;
}

}  // namespace

BRAID_OP_CASES(binary) {
  for (const std::string op : kFloat) {
    table.add(op, operands(op, "same shape", {2, 3}, {2, 3}));
    table.add(op, operands(op, "scalar right", {2, 3}, {}));
    table.add(op, operands(op, "scalar left", {}, {2, 3}));
    table.add(op, operands(op, "row", {4, 3}, {3}));
    table.add(op, operands(op, "column", {4, 3}, {4, 1}));
    table.add(op, operands(op, "outer", {4, 1}, {1, 3}));
    table.add(op, operands(op, "middle axis", {2, 3, 4}, {2, 1, 4}));
    table.add(op, operands(op, "both grow", {2, 1, 4, 1}, {3, 1, 5}));
    table.add(op, operands(op, "scalars", {}, {}));
    table.add(op, operands(op, "no elements", {0, 3}, {3}));
    OpCase big = operands(op, "several blocks", {257, 300}, {300});
    big.numeric_gradient = false;  // 77,100 differences say no more than twelve
    table.add(op, big);
    if (takes_floats_only(op)) continue;
    table.add(op, {.label = "int32", .inputs = {i32({2, 2}, {-7, 7, 9, 4}), i32({2}, {3, 2})}});
    table.add(op, {.label = "int64", .inputs = {i64({2, 2}, {-7, 7, 9, 4}), i64({2}, {3, 2})}});
    table.add(op, {.label = "int64, same shape", .inputs = {i64({3}, {-7, 7, 9}), i64({3}, {3, 2, 1})}});
  }
  for (const char* op : {"TruncateDiv", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift"}) {
    table.add(op, {.label = "int32", .inputs = {i32({2, 2}, {-7, 7, 9, 4}), i32({2}, {3, 2})}});
    table.add(op, {.label = "int64", .inputs = {i64({2, 2}, {-7, 7, 9, 4}), i64({2}, {3, 2})}});
    table.add(op, {.label = "no elements", .inputs = {i64({0, 2}, {}), i64({2}, {3, 2})}});
  }
  table.add("TruncateDiv", {.label = "floats",
                            .inputs = {f64({3}, {-7.5, 7.2, 9}), f64({}, {2})},
                            .numeric_gradient = false});  // flat between its steps
  for (const char* op : {"Xdivy", "Xlogy", "Xlog1py"})
    table.add(op, {.label = "a is zero",
                   .inputs = {f64({3}, {0, 0, 2}), f64({3}, {0.5, 0, 3})},
                   .numeric_gradient = false});  // 0 by definition where a is 0, whatever b
  for (const char* op : {"Maximum", "Minimum"})
    table.add(op, {.label = "either side", .inputs = {f64({4}, {1, 2, 3, 4}), f64({4}, {4, 3, 2, 1})}});
  table.add("DivNoNan", {.label = "by zero",
                         .inputs = {f64({2}, {1, 2}), f64({2}, {0, 4})},
                         .numeric_gradient = false});  // the limit at zero does not exist
}

BRAID_OP_CASES(compare) {
  for (const char* op : {"Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"}) {
    table.add(op, {.label = "float", .inputs = {f64({2, 3}, {1, 2, 3, 4, 5, 6}), f64({3}, {1, 5, 3})}});
    table.add(op, {.label = "int64", .inputs = {i64({2, 1}, {1, 2}), i64({3}, {1, 2, 3})}});
    table.add(op, {.label = "int32 scalar", .inputs = {i32({3}, {1, 2, 3}), i32({}, {2})}});
    table.add(op, {.label = "several blocks", .inputs = {random_f64({50, 2000}, 1), random_f64({50, 1}, 2)}});
  }
  const Tensor a = bools({2, 2}, {true, true, false, false}), b = bools({2}, {true, false});
  for (const char* op : {"Equal", "NotEqual", "LogicalAnd", "LogicalOr"})
    table.add(op, {.label = "bool", .inputs = {a, b}});
}

}  // namespace braid::testing
