// Convolutions and pooling of volumes.
#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

using Ints = std::vector<std::int64_t>;

Tensor volume_of(Shape shape, std::uint64_t seed) {
  return converted(random_f64(std::move(shape), seed), DType::Float32);
}

/// The three ops on one geometry; oneDNN knows float32 only.
void add_convolutions(OpCaseTable& table, const std::string& label, const Shape& in, const Shape& filter,
                      const Shape& out, const AttrMap& attrs) {
  const auto sizes = [](const Shape& shape) {
    return axes({static_cast<int>(shape[0]), static_cast<int>(shape[1]), static_cast<int>(shape[2]),
                 static_cast<int>(shape[3]), static_cast<int>(shape[4])});
  };
  table.add("Conv3D", {.label = label, .inputs = {volume_of(in, 1), volume_of(filter, 2)}, .attrs = attrs});
  table.add("Conv3DBackpropInputV2",
            {.label = label, .inputs = {sizes(in), volume_of(filter, 2), volume_of(out, 3)}, .attrs = attrs});
  table.add("Conv3DBackpropFilterV2",
            {.label = label, .inputs = {volume_of(in, 1), sizes(filter), volume_of(out, 3)}, .attrs = attrs});
}

}  // namespace

BRAID_OP_CASES(conv3d) {
  const AttrMap same{{"padding", "SAME"}};
  add_convolutions(table, "same", {2, 3, 2, 4, 2}, {3, 2, 3, 2, 3}, {2, 3, 2, 4, 3}, same);
  add_convolutions(table, "valid, strides", {1, 4, 5, 3, 1}, {2, 2, 1, 1, 2}, {1, 3, 2, 2, 2},
                   {{"padding", "VALID"}, {"strides", Ints{1, 1, 2, 2, 1}}});
  add_convolutions(table, "same, strides", {1, 4, 5, 3, 2}, {3, 3, 3, 2, 2}, {1, 2, 3, 2, 2},
                   {{"padding", "SAME"}, {"strides", Ints{1, 2, 2, 2, 1}}});
  add_convolutions(table, "explicit, dilated", {1, 3, 4, 3, 2}, {2, 2, 2, 2, 1}, {1, 5, 3, 3, 1},
                   {{"padding", "EXPLICIT"},
                    {"explicit_paddings", Ints{0, 0, 2, 1, 0, 1, 1, 0, 0, 0}},
                    {"dilations", Ints{1, 1, 2, 1, 1}}});
  add_convolutions(table, "NCDHW", {2, 2, 3, 3, 2}, {2, 3, 2, 2, 3}, {2, 3, 3, 3, 2},
                   {{"padding", "SAME"}, {"data_format", "NCDHW"}});
  add_convolutions(table, "two groups", {1, 3, 3, 2, 4}, {2, 2, 2, 2, 2}, {1, 2, 2, 1, 2},
                   {{"padding", "VALID"}});
  add_convolutions(table, "outputs first", {2, 3, 2, 4, 2}, {5, 3, 2, 3, 2}, {2, 3, 2, 4, 5},
                   {{"padding", "SAME"}, {"filter_format", "OHWI"}});
  add_convolutions(table, "two groups, outputs first", {1, 3, 3, 2, 4}, {6, 2, 2, 2, 2}, {1, 2, 2, 1, 6},
                   {{"padding", "VALID"}, {"filter_format", "OHWI"}});
  add_convolutions(table, "no volumes", {0, 3, 3, 2, 2}, {2, 2, 2, 2, 3}, {0, 3, 3, 2, 3}, same);
  // Several blocks of volumes with a smaller last one; too many elements for differences.
  table.add("Conv3D", {.label = "many blocks",
                       .inputs = {volume_of({37, 5, 7, 6, 16}, 4), volume_of({3, 3, 3, 16, 12}, 5)},
                       .attrs = same,
                       .numeric_gradient = false});
  table.add("Conv3DBackpropFilterV2", {.label = "many blocks",
                                       .inputs = {volume_of({37, 5, 7, 6, 16}, 4), axes({3, 3, 3, 16, 12}),
                                                  volume_of({37, 5, 7, 6, 12}, 6)},
                                       .attrs = same,
                                       .numeric_gradient = false,
                                       .float32_tolerance = 1e-4});  // sums of 7770
}

BRAID_OP_CASES(pool3d) {
  struct Form {
    std::string label;
    Shape in, out;
    AttrMap attrs;
  };
  const Form forms[] = {
      {"halves",
       {2, 4, 2, 4, 3},
       {2, 2, 1, 2, 3},
       {{"ksize", Ints{1, 2, 2, 2, 1}}, {"strides", Ints{1, 2, 2, 2, 1}}}},
      {"overlapping, same",
       {1, 3, 4, 5, 2},
       {1, 2, 2, 3, 2},
       {{"ksize", Ints{1, 2, 3, 3, 1}}, {"strides", Ints{1, 2, 2, 2, 1}}, {"padding", "SAME"}}},
      {"explicit",
       {1, 2, 3, 3, 1},
       {1, 3, 2, 4, 1},
       {{"ksize", Ints{1, 2, 2, 3, 1}},
        {"padding", "EXPLICIT"},
        {"explicit_paddings", Ints{0, 0, 1, 1, 0, 0, 1, 2, 0, 0}}}},
      {"NCDHW",
       {1, 2, 3, 4, 2},
       {1, 2, 2, 2, 2},
       {{"ksize", Ints{1, 1, 2, 2, 1}}, {"strides", Ints{1, 1, 1, 2, 1}}, {"data_format", "NCDHW"}}},
      {"strides beyond the window",
       {1, 5, 2, 3, 1},
       {1, 2, 2, 1, 1},
       {{"ksize", Ints{1, 2, 1, 2, 1}}, {"strides", Ints{1, 3, 1, 3, 1}}}},
      {"no volumes", {0, 3, 4, 4, 2}, {0, 2, 3, 3, 2}, {{"ksize", Ints{1, 2, 2, 2, 1}}}},
  };
  for (const Form& form : forms) {
    const Tensor x = random_f64(form.in, 1), dy = random_f64(form.out, 2);
    Tensor sizes(DType::Int32, Shape{5});
    for (int i = 0; i < 5; ++i)
      sizes.data<std::int32_t>()[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(form.in[i]);
    table.add("MaxPool3D", {.label = form.label, .inputs = {x}, .attrs = form.attrs});
    table.add("AvgPool3D", {.label = form.label, .inputs = {x}, .attrs = form.attrs});
    table.add("AvgPool3DGrad", {.label = form.label, .inputs = {sizes, dy}, .attrs = form.attrs});
    // Any y of the right shape does here; volume_ops_test.cc has the values.
    table.add("MaxPool3DGrad", {.label = form.label, .inputs = {x, dy, dy}, .attrs = form.attrs});
    AttrMap first = form.attrs;
    first.set("_first_maximum", true);
    table.add("MaxPool3DGrad", {.label = form.label + ", first", .inputs = {x, dy, dy}, .attrs = first});
  }
  const AttrMap halves{{"ksize", Ints{1, 2, 2, 2, 1}}, {"strides", Ints{1, 2, 2, 2, 1}}};
  table.add("MaxPool3D", {.label = "many blocks",
                          .inputs = {random_f64({40, 6, 14, 14, 16}, 3)},
                          .attrs = halves,
                          .numeric_gradient = false});  // too many elements for differences
  table.add("AvgPool3DGrad", {.label = "many blocks",
                              .inputs = {axes({40, 6, 14, 14, 16}), random_f64({40, 3, 7, 7, 16}, 4)},
                              .attrs = halves,
                              .numeric_gradient = false});
}

}  // namespace braid::testing
