#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(pool2d) {
  using Ints = std::vector<std::int64_t>;
  struct Form {
    std::string label;
    Shape in, out;
    AttrMap attrs;
  };
  const Form forms[] = {
      {"halves", {2, 4, 4, 3}, {2, 2, 2, 3}, {{"ksize", Ints{1, 2, 2, 1}}, {"strides", Ints{1, 2, 2, 1}}}},
      {"overlapping, same",
       {1, 4, 5, 2},
       {1, 2, 3, 2},
       {{"ksize", Ints{1, 3, 3, 1}}, {"strides", Ints{1, 2, 2, 1}}, {"padding", "SAME"}}},
      {"explicit",
       {1, 3, 3, 1},
       {1, 2, 4, 1},
       {{"ksize", Ints{1, 2, 3, 1}},
        {"padding", "EXPLICIT"},
        {"explicit_paddings", Ints{0, 0, 0, 0, 1, 2, 0, 0}}}},
      {"NCHW",
       {1, 2, 4, 4},
       {1, 2, 2, 2},
       {{"ksize", Ints{1, 1, 2, 2}}, {"strides", Ints{1, 1, 2, 2}}, {"data_format", "NCHW"}}},
      {"no images", {0, 4, 4, 2}, {0, 3, 3, 2}, {{"ksize", Ints{1, 2, 2, 1}}}},
  };
  for (const Form& form : forms) {
    const Tensor x = random_f64(form.in, 1), dy = random_f64(form.out, 2);
    Tensor sizes(DType::Int32, Shape{4});
    for (int i = 0; i < 4; ++i)
      sizes.data<std::int32_t>()[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(form.in[i]);
    table.add("MaxPool", {.label = form.label, .inputs = {x}, .attrs = form.attrs});
    table.add("AvgPool", {.label = form.label, .inputs = {x}, .attrs = form.attrs});
    table.add("AvgPoolGrad", {.label = form.label, .inputs = {sizes, dy}, .attrs = form.attrs});
    // Any y of the right shape does here; pool2d_test.cc has the values.
    table.add("MaxPoolGrad", {.label = form.label, .inputs = {x, dy, dy}, .attrs = form.attrs});
  }
  const AttrMap halves{{"ksize", Ints{1, 2, 2, 1}}, {"strides", Ints{1, 2, 2, 1}}};
  table.add("MaxPool", {.label = "many blocks",
                        .inputs = {random_f64({40, 28, 28, 16}, 3)},
                        .attrs = halves,
                        .numeric_gradient = false});  // too many elements for differences
  table.add("AvgPoolGrad", {.label = "many blocks",
                            .inputs = {axes({40, 28, 28, 16}), random_f64({40, 14, 14, 16}, 4)},
                            .attrs = halves,
                            .numeric_gradient = false});
}

BRAID_OP_CASES(lrn) {
  const Tensor x = random_f64({2, 2, 1, 6}, 1), dy = random_f64({2, 2, 1, 6}, 2),
               y = random_f64({2, 2, 1, 6}, 3);
  const AttrMap narrow{{"depth_radius", 1}, {"bias", 2.0}, {"alpha", 0.3}, {"beta", 0.75}};
  for (const AttrMap& attrs : {AttrMap{}, narrow}) {
    table.add("LRN", {.label = "pixels", .inputs = {x}, .attrs = attrs});
    table.add("LRNGrad", {.label = "pixels", .inputs = {dy, x, y}, .attrs = attrs});
  }
  table.add("LRN", {.label = "no elements", .inputs = {random_f64({0, 2, 2, 3}, 1)}});
  table.add("LRN", {.label = "several blocks",
                    .inputs = {random_f64({2, 30, 40, 16}, 1)},
                    .numeric_gradient = false});  // 38,400 differences say no more than 24
}

}  // namespace braid::testing
