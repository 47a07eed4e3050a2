#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(fused_conv2d) {
  using Ints = std::vector<std::int64_t>;
  struct Form {
    std::string label;
    Shape in, filter, out;
    AttrMap attrs;
  };
  const Form forms[] = {
      {"same", {2, 4, 4, 2}, {3, 3, 2, 3}, {2, 4, 4, 3}, {{"padding", "SAME"}}},
      {"aligned", {3, 6, 5, 8}, {3, 3, 8, 16}, {3, 6, 5, 16}, {{"padding", "SAME"}}},
      {"strides",
       {2, 6, 6, 4},
       {3, 3, 4, 8},
       {2, 3, 3, 8},
       {{"padding", "SAME"}, {"strides", Ints{1, 2, 2, 1}}}},
      {"NCHW", {2, 2, 4, 3}, {3, 3, 2, 3}, {2, 3, 4, 3}, {{"padding", "SAME"}, {"data_format", "NCHW"}}},
      {"groups", {2, 4, 4, 6}, {1, 1, 2, 9}, {2, 4, 4, 9}, {{"padding", "VALID"}}},
      {"no images", {0, 4, 4, 2}, {3, 3, 2, 3}, {0, 4, 4, 3}, {{"padding", "SAME"}}},
  };
  const auto f32_of = [](const Shape& shape, std::uint64_t seed) {
    return converted(random_f64(shape, seed), DType::Float32);
  };
  for (const Form& form : forms)
    for (const bool relu : {false, true})
      for (const bool residual : {false, true}) {
        AttrMap attrs = form.attrs;
        attrs.set("relu", relu);
        std::vector<Tensor> inputs{f32_of(form.in, 1), f32_of(form.filter, 2), f32_of({form.filter[3]}, 3)};
        if (residual) inputs.push_back(f32_of(form.out, 4));
        table.add("braid.FusedConv2D",
                  {.label = form.label + (relu ? ", relu" : "") + (residual ? ", residual" : ""),
                   .inputs = std::move(inputs),
                   .attrs = attrs,
                   .numeric_gradient = false});  // it has none
      }
}

}  // namespace braid::testing
