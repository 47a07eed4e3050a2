#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

struct Reduced {
  const char* label;
  Shape shape;
  Tensor axes;
};

// Every way in which kept and reduced axes can follow each other, and each way in which the work is cut.
std::vector<Reduced> layouts() {
  return {{"all", {2, 3}, axes({0, 1})},
          {"rows", {3, 4}, axes({1})},
          {"columns", {5, 4}, axes({0})},
          {"middle", {2, 3, 4}, axes({1})},
          {"ends", {2, 3, 4}, axes({0, 2})},
          {"negative axis", {2, 3}, axes({-1})},
          {"scalar axis", {2, 3}, i32({}, {0})},
          {"int64 axes", {2, 3, 2}, i64({2}, {2, 0})},
          {"four axes", {2, 3, 2, 3}, axes({1, 3})},
          {"no axes", {2, 3}, axes({})},
          {"axis of size 1", {3, 1}, axes({1})},
          {"scalar", {}, axes({})}};
}

std::vector<Reduced> large_layouts() {
  return {{"long run", {200001}, axes({0})},
          {"long runs", {3, 140000}, axes({1})},
          {"many rows", {5000, 70}, axes({1})},
          {"tall columns", {40000, 5}, axes({0})},
          {"wide columns", {33, 9000}, axes({0})},
          {"image bias", {8, 6, 1500}, axes({0, 2})},
          {"blocks of columns", {3, 7, 5000}, axes({1})},
          {"tall blocks of columns", {2, 3000, 70}, axes({1})},
          {"columns of two axes", {40, 3, 50, 6}, axes({0, 2})},
          {"many small slices", {3000, 20, 3}, axes({1})},
          {"short rows", {3001, 6}, axes({1})},
          {"rows of whole packs", {100, 256}, axes({1})},
          {"long rows", {20, 6002}, axes({1})},
          {"rows in pieces", {9, 40, 11, 50}, axes({1, 3})}};
}

}  // namespace

BRAID_OP_CASES(reduce) {
  for (const char* op : {"Sum", "Mean", "Max", "Min", "Prod"}) {
    for (const Reduced& r : layouts())
      for (bool keep : {false, true}) {
        table.add(op, {.label = std::string(r.label) + (keep ? ", kept" : ""),
                       .inputs = {random_f64(r.shape, 5, 0.5, 1.5), r.axes},
                       .attrs = {{"keep_dims", keep}}});
      }
    for (const Reduced& r : large_layouts()) {
      OpCase c{.label = r.label, .inputs = {random_f64(r.shape, 6, 0.9999, 1.0001), r.axes}};
      c.numeric_gradient = false;                                 // the small layouts cover the rule
      if (std::string(op) == "Prod") c.float32_tolerance = 5e-3;  // 200,000 roundings of numbers near 1
      table.add(op, c);
    }
    table.add(op, {.label = "no elements", .inputs = {random_f64({0, 3}, 1), axes({0})}});
    table.add(op, {.label = "no columns", .inputs = {random_f64({2, 0}, 1), axes({0})}});
    table.add(op, {.label = "no integers", .inputs = {i32({0, 3}, {}), axes({0})}});
    table.add(op, {.label = "no results", .inputs = {random_f64({0, 3}, 1), axes({1})}});
    table.add(op, {.label = "int32", .inputs = {i32({2, 3}, {1, -2, 3, 4, 5, 6}), axes({1})}});
    table.add(op, {.label = "int64", .inputs = {i64({2, 3}, {1, -2, 3, 4, 5, 6}), axes({0})}});
  }
  for (const char* op : {"Max", "Min"})
    table.add(op, {.label = "two equal",
                   .inputs = {f64({4}, {3, 1, 3, 1}), axes({0})},
                   .numeric_gradient = false});  // a kink: TensorFlow shares dy among the equal ones
  table.add("Prod", {.label = "zeros", .inputs = {f64({3, 3}, {0, 2, 3, 0, 0, 4, 1, 2, 3}), axes({1})}});
  for (const char* op : {"All", "Any"}) {
    const Tensor x = bools({2, 3}, {true, false, true, true, true, true});
    for (const auto& a : {axes({}), axes({0}), axes({1}), axes({0, 1})})
      table.add(op, {.label = "bools", .inputs = {x, a}});
    table.add(op, {.label = "no elements", .inputs = {bools({0}, {}), axes({0})}});
    table.add(op, {.label = "many",
                   .inputs = {converted(random_i64({500, 300}, 3, 0, 2), DType::Bool), axes({1})}});
  }
}

BRAID_OP_CASES(reduce_grad) {
  for (bool divide : {false, true}) {
    const AttrMap attrs = {{"divide", divide}};
    for (const Reduced& r : layouts()) {
      const Tensor like = random_f64(r.shape, 1);
      Shape kept = r.shape;
      for (std::int64_t axis : tensor_to_int64s(r.axes))
        kept.set_dim(static_cast<int>(axis < 0 ? axis + kept.rank() : axis), 1);
      table.add("braid.BroadcastReduced",
                {.label = r.label, .inputs = {random_f64(kept, 2), like, r.axes}, .attrs = attrs});
    }
  }
  table.add("braid.ProdGrad",
            {.label = "zeros", .inputs = {f64({2, 3}, {0, 2, 3, 0, 0, 4}), f64({2}, {1, 2}), axes({1})}});
  table.add("braid.ProdGrad",
            {.label = "ends", .inputs = {random_f64({2, 3, 4}, 1), random_f64({3}, 2), axes({0, 2})}});
  table.add("braid.ProdGrad",
            {.label = "several blocks",
             .inputs = {random_f64({700, 100}, 1, 0.99, 1.01), random_f64({700}, 2), axes({1})}});
}

BRAID_OP_CASES(reduce_to_shape) {
  const auto add = [&](const char* label, Shape from, Shape to) {
    table.add("braid.ReduceToShapeOf",
              {.label = label, .inputs = {random_f64(std::move(from), 1), random_f64(std::move(to), 2)}});
  };
  add("equal", {2, 3}, {2, 3});
  add("scalar", {2, 3}, {});
  add("row", {4, 3}, {3});
  add("column", {4, 3}, {4, 1});
  add("both", {2, 3, 4}, {3, 1});
  add("ones only", {1, 3}, {3});
  add("no elements", {0, 3}, {3});
  add("several blocks", {300, 500}, {500});
}

BRAID_OP_CASES(arg_reduce) {
  for (const char* op : {"ArgMax", "ArgMin"}) {
    table.add(op, {.label = "rows", .inputs = {random_f64({4, 7}, 1), i32({}, {1})}});
    table.add(op, {.label = "columns", .inputs = {random_f64({4, 7}, 1), i32({}, {0})}});
    table.add(op, {.label = "middle", .inputs = {random_f64({3, 5, 400}, 1), i64({}, {-2})}});
    table.add(op, {.label = "equal", .inputs = {f64({2, 3}, {1, 1, 1, 0, 2, 2}), i32({}, {1})}});
    table.add(op, {.label = "int32 output",
                   .inputs = {i64({2, 3}, {1, 5, 1, 0, 2, 2}), i32({}, {1})},
                   .attrs = {{"output_type", DType::Int32}}});
    table.add(op, {.label = "several blocks", .inputs = {random_f64({900, 100}, 1), i32({}, {1})}});
    table.add(op, {.label = "long rows", .inputs = {random_f64({3, 9001}, 1), i32({}, {1})}});
    table.add(op, {.label = "long columns", .inputs = {random_f64({3000, 5}, 1), i32({}, {0})}});
    table.add(op, {.label = "many columns", .inputs = {random_f64({2, 20, 4500}, 1), i32({}, {1})}});
    table.add(op, {.label = "equal far apart",
                   .inputs = {converted(random_i64({4, 3000}, 1, 0, 3), DType::Int32), i32({}, {1})}});
  }
}

}  // namespace braid::testing
