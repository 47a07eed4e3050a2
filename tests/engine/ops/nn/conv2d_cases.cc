#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

using Ints = std::vector<std::int64_t>;

Tensor image_of(Shape shape, std::uint64_t seed) {
  return converted(random_f64(std::move(shape), seed), DType::Float32);
}

/// The three ops of a family on one geometry; oneDNN knows float32 only.
void add_family(OpCaseTable& table, const std::string& forward, const std::string& label, const Shape& in,
                const Shape& filter, const Shape& out, const AttrMap& attrs) {
  const auto sizes = [](const Shape& shape) {
    Tensor t(DType::Int32, Shape{4});
    for (int i = 0; i < 4; ++i)
      t.data<std::int32_t>()[static_cast<std::size_t>(i)] = static_cast<int>(shape[i]);
    return t;
  };
  const std::string prefix = forward == "Conv2D" ? forward : "DepthwiseConv2dNative";
  table.add(forward, {.label = label, .inputs = {image_of(in, 1), image_of(filter, 2)}, .attrs = attrs});
  table.add(prefix + "BackpropInput",
            {.label = label, .inputs = {sizes(in), image_of(filter, 2), image_of(out, 3)}, .attrs = attrs});
  table.add(prefix + "BackpropFilter",
            {.label = label, .inputs = {image_of(in, 1), sizes(filter), image_of(out, 3)}, .attrs = attrs});
}

}  // namespace

BRAID_OP_CASES(conv2d) {
  const AttrMap same{{"padding", "SAME"}, {"strides", Ints{1, 1, 1, 1}}};
  add_family(table, "Conv2D", "same", {2, 4, 4, 2}, {3, 3, 2, 3}, {2, 4, 4, 3}, same);
  add_family(table, "Conv2D", "valid, strides", {1, 5, 6, 1}, {2, 3, 1, 2}, {1, 2, 2, 2},
             {{"padding", "VALID"}, {"strides", Ints{1, 2, 3, 1}}});
  add_family(table, "Conv2D", "explicit, dilated", {1, 4, 5, 2}, {2, 2, 2, 1}, {1, 5, 4, 1},
             {{"padding", "EXPLICIT"},
              {"explicit_paddings", Ints{0, 0, 2, 1, 0, 1, 0, 0}},
              {"dilations", Ints{1, 2, 2, 1}}});
  add_family(table, "Conv2D", "NCHW", {2, 2, 4, 3}, {3, 3, 2, 3}, {2, 3, 4, 3},
             {{"padding", "SAME"}, {"data_format", "NCHW"}});
  add_family(table, "Conv2D", "three groups", {2, 4, 4, 6}, {3, 3, 2, 9}, {2, 4, 4, 9}, same);
  add_family(table, "Conv2D", "two groups, NCHW", {2, 4, 4, 3}, {3, 2, 2, 2}, {2, 2, 2, 2},
             {{"padding", "VALID"}, {"data_format", "NCHW"}});
  for (const std::int64_t channels : {1, 2, 3, 4}) {  // few channels have kernels of their own on a GPU
    const std::string label = std::to_string(channels) + " channels to eight";
    add_family(table, "Conv2D", label, {3, 5, 4, channels}, {3, 3, channels, 8}, {3, 5, 4, 8}, same);
    add_family(table, "Conv2D", label + ", strides", {2, 7, 6, channels}, {3, 3, channels, 4}, {2, 4, 3, 4},
               {{"padding", "SAME"}, {"strides", Ints{1, 2, 2, 1}}});
  }
  add_family(table, "Conv2D", "one channel under 5 x 5", {2, 6, 7, 1}, {5, 5, 1, 16}, {2, 6, 7, 16}, same);
  add_family(table, "Conv2D", "one channel to many, dilated", {2, 9, 8, 1}, {3, 3, 1, 128}, {2, 5, 4, 128},
             {{"padding", "VALID"}, {"dilations", Ints{1, 2, 2, 1}}});
  // Of halves few channels may be padded to eight on a GPU.
  add_family(table, "Conv2D", "three channels to many", {2, 6, 5, 3}, {3, 3, 3, 24}, {2, 6, 5, 24}, same);
  add_family(table, "Conv2D", "many channels to three", {2, 4, 5, 16}, {1, 2, 16, 3}, {2, 4, 5, 3}, same);
  const AttrMap first{{"padding", "SAME"}, {"filter_format", "OHWI"}};
  add_family(table, "Conv2D", "outputs first", {2, 4, 5, 3}, {4, 3, 2, 3}, {2, 4, 5, 4}, first);
  add_family(table, "Conv2D", "outputs first, eights", {2, 4, 5, 8}, {16, 3, 3, 8}, {2, 4, 5, 16}, first);
  add_family(table, "Conv2D", "three groups, outputs first", {2, 4, 4, 6}, {9, 3, 3, 2}, {2, 4, 4, 9}, first);
  add_family(table, "Conv2D", "single places, outputs first", {2, 3, 4, 5}, {7, 1, 1, 5}, {2, 3, 4, 7},
             first);
  add_family(table, "Conv2D", "three channels, outputs first", {2, 6, 5, 3}, {8, 3, 3, 3}, {2, 6, 5, 8},
             first);
  add_family(table, "Conv2D", "no images", {0, 4, 4, 2}, {3, 3, 2, 3}, {0, 4, 4, 3}, same);
  add_family(table, "DepthwiseConv2dNative", "same", {2, 4, 3, 2}, {3, 3, 2, 2}, {2, 4, 3, 4}, same);
  add_family(table, "DepthwiseConv2dNative", "strides, multiplier 1", {2, 5, 4, 8}, {3, 2, 8, 1},
             {2, 3, 2, 8}, {{"padding", "SAME"}, {"strides", Ints{1, 2, 2, 1}}});
  add_family(table, "DepthwiseConv2dNative", "explicit, dilated", {1, 4, 5, 3}, {2, 2, 3, 1}, {1, 5, 4, 3},
             {{"padding", "EXPLICIT"},
              {"explicit_paddings", Ints{0, 0, 2, 1, 0, 1, 0, 0}},
              {"dilations", Ints{1, 2, 2, 1}}});
  add_family(table, "DepthwiseConv2dNative", "NCHW", {2, 3, 4, 3}, {3, 3, 3, 2}, {2, 6, 4, 3},
             {{"padding", "SAME"}, {"data_format", "NCHW"}});
  // Filters that strips of rows take on a GPU.
  for (const bool nchw : {false, true}) {
    const auto image = [&](std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) {
      return nchw ? Shape{n, c, h, w} : Shape{n, h, w, c};
    };
    const auto attrs = [&](const char* padding, std::int64_t stride) -> AttrMap {
      return {{"padding", padding},
              {"data_format", nchw ? "NCHW" : "NHWC"},
              {"strides", nchw ? Ints{1, 1, stride, stride} : Ints{1, stride, stride, 1}}};
    };
    const std::string label = nchw ? "NCHW, " : "";
    const auto add = [&](const char* name, const Shape& in, const Shape& filter, const Shape& out,
                         const AttrMap& of) {
      add_family(table, "DepthwiseConv2dNative", label + name, in, filter, out, of);
    };
    add("3 x 3, strides", image(2, 6, 7, 3), {3, 3, 3, 1}, image(2, 3, 4, 3), attrs("SAME", 2));
    add("5 x 5", image(1, 7, 6, 2), {5, 5, 2, 1}, image(1, 7, 6, 2), attrs("SAME", 1));
    add("5 x 5, strides", image(1, 9, 8, 2), {5, 5, 2, 1}, image(1, 3, 2, 2), attrs("VALID", 2));
    add("7 x 7", image(1, 4, 5, 2), {7, 7, 2, 1}, image(1, 4, 5, 2), attrs("SAME", 1));
    add("7 x 7, strides", image(1, 9, 5, 1), {7, 7, 1, 1}, image(1, 5, 3, 1), attrs("SAME", 2));
  }
  add_family(table, "DepthwiseConv2dNative", "3 x 3, explicit paddings", {1, 5, 4, 40}, {3, 3, 40, 1},
             {1, 4, 2, 40},
             {{"padding", "EXPLICIT"},
              {"explicit_paddings", Ints{0, 0, 3, 1, 0, 2, 0, 0}},
              {"strides", Ints{1, 2, 2, 1}}});
  // Of sequences, which are images of one row.
  const AttrMap halved{{"padding", "SAME"}, {"strides", Ints{1, 2, 2, 1}}};
  add_family(table, "DepthwiseConv2dNative", "a sequence", {2, 1, 13, 4}, {1, 9, 4, 1}, {2, 1, 13, 4}, same);
  add_family(table, "DepthwiseConv2dNative", "a sequence, strides", {2, 1, 14, 3}, {1, 4, 3, 1}, {2, 1, 7, 3},
             halved);
  add_family(table, "DepthwiseConv2dNative", "a sequence, strides, a longer filter", {1, 1, 21, 2},
             {1, 15, 2, 1}, {1, 1, 11, 2}, halved);
  add_family(table, "DepthwiseConv2dNative", "a sequence, a filter longer than it", {1, 1, 20, 2},
             {1, 31, 2, 1}, {1, 1, 20, 2}, same);
  add_family(table, "DepthwiseConv2dNative", "a sequence, its past only", {2, 1, 9, 40}, {1, 4, 40, 1},
             {2, 1, 9, 40}, {{"padding", "EXPLICIT"}, {"explicit_paddings", Ints{0, 0, 0, 0, 3, 0, 0, 0}}});
  table.add("DepthwiseConv2dNativeBackpropFilter",
            {.label = "many places of sequences",
             .inputs = {converted(random_f64({40, 1, 150, 6}, 1, 0, 1), DType::Float32), axes({1, 15, 6, 1}),
                        converted(random_f64({40, 1, 150, 6}, 3, 0, 1), DType::Float32)},
             .attrs = same,
             .numeric_gradient = false,
             .float32_tolerance = 1e-4});
  add_family(table, "DepthwiseConv2dNative", "no images", {0, 4, 4, 2}, {3, 3, 2, 1}, {0, 4, 4, 2}, same);
  // Sums over many pixels, of positive numbers, so that they agree to rounding; too many elements for
  // differences.
  for (const bool nchw : {false, true}) {
    const Shape shape = nchw ? Shape{9, 12, 25, 21} : Shape{9, 25, 21, 12};
    const Tensor images = converted(random_f64(shape, 1, 0, 1), DType::Float32);
    const Tensor gradients = converted(random_f64(shape, 3, 0, 1), DType::Float32);
    const AttrMap attrs{{"padding", "SAME"}, {"data_format", nchw ? "NCHW" : "NHWC"}};
    const std::string label = nchw ? "many pixels, NCHW" : "many pixels";
    table.add("DepthwiseConv2dNative", {.label = label,
                                        .inputs = {images, image_of({3, 3, 12, 1}, 2)},
                                        .attrs = attrs,
                                        .numeric_gradient = false});
    table.add("DepthwiseConv2dNativeBackpropInput",
              {.label = label,
               .inputs = {nchw ? axes({9, 12, 25, 21}) : axes({9, 25, 21, 12}), image_of({3, 3, 12, 1}, 2),
                          gradients},
               .attrs = attrs,
               .numeric_gradient = false});
    table.add("DepthwiseConv2dNativeBackpropFilter", {.label = label,
                                                      .inputs = {images, axes({3, 3, 12, 1}), gradients},
                                                      .attrs = attrs,
                                                      .numeric_gradient = false,
                                                      .float32_tolerance = 1e-4});
  }
  // Several blocks of images with a smaller last one; too many elements for differences.
  table.add("Conv2D", {.label = "many blocks",
                       .inputs = {image_of({37, 14, 14, 16}, 4), image_of({3, 3, 16, 20}, 5)},
                       .attrs = same,
                       .numeric_gradient = false});
  table.add("Conv2DBackpropInput",
            {.label = "many blocks",
             .inputs = {axes({37, 14, 14, 16}), image_of({3, 3, 16, 20}, 5), image_of({37, 14, 14, 20}, 6)},
             .attrs = same,
             .numeric_gradient = false});
  table.add("Conv2DBackpropFilter",
            {.label = "many blocks",
             .inputs = {image_of({37, 14, 14, 16}, 4), axes({3, 3, 16, 20}), image_of({37, 14, 14, 20}, 6)},
             .attrs = same,
             .numeric_gradient = false});
}

}  // namespace braid::testing
