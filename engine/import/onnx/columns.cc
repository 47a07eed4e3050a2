// Col2Im: the columns of image blocks added up at their places. Sizes of image and block may be inputs.
#include "base/error.h"
#include "engine/import/onnx/node.h"

namespace braid::onnx {
namespace {

/// x [N, C * block, windows]
void col_to_image(OnnxNode& n) {
  const Val x = n.in(0);
  const Val image = cast(n.in(1), DType::Int64), block = cast(n.in(2), DType::Int64);
  const int axes = image.list_length();
  const auto count = static_cast<std::size_t>(axes);
  const Ints strides = n.is("strides", Ints(count, 1)), dilations = n.is("dilations", Ints(count, 1));
  const Ints pads = n.is("pads", Ints(2 * count, 0));
  if (strides.size() != count || dilations.size() != count || pads.size() != 2 * count)
    throw InvalidArgument("strides, dilations and pads do not fit the image");
  for (std::size_t i = 0; i < count; ++i)
    if (strides[i] < 1 || dilations[i] < 1) throw InvalidArgument("a stride or a dilation is not positive");
  // The place in the padded image of every block position in every window: block axes first, then window
  // axes.
  Val places;
  std::vector<Val> padded;
  for (int a = 0; a < axes; ++a) {
    const auto i = static_cast<std::size_t>(a);
    const Val size = element(image, a) + static_cast<double>(checked_plus(pads[i], pads[i + count])),
              kernel = element(block, a);
    const Val reach = (kernel - 1.0) * static_cast<double>(dilations[i]) + 1.0;
    const Val windows = tf("FloorDiv", {size - reach, like(static_cast<double>(strides[i]), size)}) + 1.0;
    Ints in_block(2 * count, 1), in_window(2 * count, 1);
    in_block[i] = in_window[count + i] = -1;
    const Val place = reshape(range(kernel) * static_cast<double>(dilations[i]), in_block) +
                      reshape(range(windows) * static_cast<double>(strides[i]), in_window);
    places = places ? places * size + place : place;
    padded.push_back(size);
  }
  const Val channels = size_of(x, 1) / reduce("Prod", block, {0});
  const Val rows = size_of(x, 0) * channels, minus_one = n.b.number(-1, DType::Int64);
  const Val flat = expand_dims(reshape(places, Ints{-1}), 1);
  const Val columns = transpose(reshape(x, pack({rows, size_of(flat, 0)}, 0)), {1, 0});
  const Val area = reduce("Prod", pack(padded, 0), {0});
  const Val summed = transpose(tf("ScatterNd", {flat, columns, pack({area, rows}, 0)}), {1, 0});
  std::vector<Val> shape{size_of(x, 0), channels};
  shape.insert(shape.end(), padded.begin(), padded.end());
  const Val whole = reshape(summed, pack(shape, 0));
  const Val before = concat({n.b.ints({0, 0}), n.b.ints(Ints(pads.begin(), pads.begin() + axes))}, 0);
  const Val size = concat({pack({minus_one, minus_one}, 0), image}, 0);
  n.out(0, tf("Slice", {whole, before, size}));
}

}  // namespace

void add_columns(Translations& t) { t.add("Col2Im", col_to_image); }

}  // namespace braid::onnx
