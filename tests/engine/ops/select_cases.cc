#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

void cases_select(OpCaseTable& table) {
  const Tensor a = random_f64({2, 3}, 1), b = random_f64({2, 3}, 2);
  const Tensor all = bools({2, 3}, {true, false, true, false, false, true});
  for (const char* op : {"Select", "SelectV2"}) {
    table.add(op, {.label = "same shape", .inputs = {all, a, b}});
    table.add(op, {.label = "scalar condition", .inputs = {bools({}, {false}), a, b}});
    table.add(op,
              {.label = "int64", .inputs = {bools({2}, {true, false}), i64({2}, {1, 2}), i64({2}, {3, 4})}});
    table.add(op,
              {.label = "bool values",
               .inputs = {bools({2}, {true, false}), bools({2}, {true, true}), bools({2}, {false, false})}});
  }
  table.add("Select", {.label = "rows", .inputs = {bools({2}, {true, false}), a, b}});
  table.add("SelectV2", {.label = "rows", .inputs = {bools({2, 1}, {true, false}), a, b}});
  table.add("SelectV2", {.label = "scalar left", .inputs = {all, f64({}, {3}), b}});
  table.add("SelectV2", {.label = "scalar right", .inputs = {all, a, f64({}, {3})}});
  table.add("SelectV2", {.label = "scalars", .inputs = {all, f64({}, {1}), f64({}, {3})}});
  table.add("SelectV2",
            {.label = "all grow",
             .inputs = {bools({2, 1, 1}, {true, false}), random_f64({3, 1}, 3), random_f64({4}, 4)}});
}

void cases_clip(OpCaseTable& table) {
  const Tensor x = f64({5}, {-2, -0.5, 0.3, 0.9, 4});
  table.add("ClipByValue", {.label = "scalars", .inputs = {x, f64({}, {-1}), f64({}, {1})}});
  table.add("ClipByValue", {.label = "tensors",
                            .inputs = {x, f64({5}, {-1, -1, 0.5, 0.5, 0.5}), f64({5}, {1, 1, 1, 0.7, 1})}});
  table.add("ClipByValue", {.label = "int32", .inputs = {i32({3}, {-5, 2, 9}), i32({}, {0}), i32({}, {4})}});
}

void cases_cast(OpCaseTable& table) {
  const Tensor x = f64({4}, {-1.5, 0, 2.7, 100});
  for (DType to : {DType::Float32, DType::Int32, DType::Int64, DType::UInt8, DType::Bool, DType::Int8}) {
    OpCase c{.label = "float64 to " + std::string(dtype_name(to)), .inputs = {x}, .attrs = {{"DstT", to}}};
    if (!is_floating(to)) c.no_gradient_inputs = {0};
    c.numeric_gradient = !is_floating(to);  // float32 outputs are too coarse for a step of 1e-5
    table.add("Cast", c);
  }
  table.add("Cast", {.label = "to itself", .inputs = {x}, .attrs = {{"DstT", DType::Float64}}});
  table.add("Cast", {.label = "float32 to float64",
                     .inputs = {converted(x, DType::Float32)},
                     .attrs = {{"DstT", DType::Float64}}});
  table.add("Cast",
            {.label = "bool", .inputs = {bools({2}, {true, false})}, .attrs = {{"DstT", DType::Float32}}});
  table.add("Cast",
            {.label = "int64", .inputs = {i64({2}, {-3, 1L << 40})}, .attrs = {{"DstT", DType::Int32}}});
}

}  // namespace braid::testing
