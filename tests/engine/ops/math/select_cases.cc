#include <cstring>

#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(select) {
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

BRAID_OP_CASES(clip) {
  const Tensor x = f64({5}, {-2, -0.5, 0.3, 0.9, 4});
  table.add("ClipByValue", {.label = "scalars", .inputs = {x, f64({}, {-1}), f64({}, {1})}});
  table.add("ClipByValue", {.label = "tensors",
                            .inputs = {x, f64({5}, {-1, -1, 0.5, 0.5, 0.5}), f64({5}, {1, 1, 1, 0.7, 1})}});
  table.add("ClipByValue", {.label = "int32", .inputs = {i32({3}, {-5, 2, 9}), i32({}, {0}), i32({}, {4})}});
}

BRAID_OP_CASES(cast) {
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
  // Normal and denormal numbers, zeros, infinities and NaN; of float16 with bfloat16 they are other ones.
  Tensor bits(DType::Float16, Shape{12}), brains(DType::BFloat16, Shape{12});
  const std::uint16_t patterns[] = {0x3C00, 0xC123, 0x0001, 0x03FF, 0x0400, 0x7BFF,
                                    0x8000, 0x7C00, 0xFC00, 0x7E00, 0x4248, 0xB555};
  std::memcpy(bits.raw(), patterns, sizeof(patterns));
  std::memcpy(brains.raw(), patterns, sizeof(patterns));
  const Tensor floats = f32({9}, {0, -1.5F, 65519, 65520, 1e-7F, 3e-8F, 1e30F, 1.00048828125F, -0.1F});
  for (const DType half : {DType::Float16, DType::BFloat16}) {
    const std::string name(dtype_name(half));
    const auto add = [&](const std::string& label, Tensor input, DType to) {
      table.add(
          "Cast",
          {.label = label, .inputs = {std::move(input)}, .attrs = {{"DstT", to}}, .numeric_gradient = false});
    };
    const Tensor& halves = half == DType::Float16 ? bits : brains;
    add(name + " to float32", halves, DType::Float32);
    add(name + " to int16", halves, DType::Int16);
    add(name + " to float16", halves, DType::Float16);
    add("float32 to " + name, floats, half);
    add("int64 to " + name, i64({3}, {-3, 2049, 1 << 20}), half);
    add("uint8 to " + name, converted(axes({0, 7, 255}), DType::UInt8), half);
  }
}

}  // namespace braid::testing
