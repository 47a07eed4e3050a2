// Reading images at places between their elements: GridSample, AffineGrid, RoiAlign. A place along an axis is
// a few taps, each an index and a weight; those of several axes are multiplied out and gathered.
#include <cmath>
#include <functional>

#include "base/error.h"
#include "engine/import/onnx/node.h"

namespace braid::onnx {
namespace {

struct Tap {
  Val index;   // int64, inside the image
  Val weight;  // 0 where it lies outside
};
using Taps = std::vector<Tap>;

Val integer(Val x) { return cast(x, DType::Int64); }

/// Sum of the taps' products. `images` [N, d..., C]; `batch` and all taps have the shape of the places.
Val sample(Val images, Val batch, const std::vector<Taps>& axes, Val (*combine)(Val, Val)) {
  Val result;
  std::vector<Val> places{batch};
  const std::function<void(std::size_t, Val)> visit = [&](std::size_t axis, Val weight) {
    if (axis == axes.size()) {
      const Val values = tf("GatherNd", {images, pack(places, places.front().rank())});
      const Val term = values * cast(expand_dims(weight, weight.rank()), images.dtype());
      result = result ? combine(result, term) : term;
      return;
    }
    for (const Tap& tap : axes[axis]) {
      places.push_back(tap.index);
      visit(axis + 1, weight ? weight * tap.weight : tap.weight);
      places.pop_back();
    }
  };
  visit(0, {});
  return result;
}

Val add(Val a, Val b) { return a + b; }

// --------------------------------------------------------------------------------------------------
// GridSample

/// Mirrored at both ends until it lies inside; `edge` is half an element where pixels' borders are the ends.
Val reflected(Val at, Val size, bool align_corners) {
  const double edge = align_corners ? 0 : -0.5;
  const Val span = align_corners ? size - 1.0 : size;
  const Val safe = maximum(span, like(1, span));
  const Val from_low = tf("Abs", {at - edge});
  const Val rest = tf("FloorMod", {from_low, safe}), flips = tf("Floor", {from_low / safe});
  const Val even = tf("Equal", {tf("FloorMod", {flips, like(2, flips)}), like(0, flips)});
  return where(even, rest, safe - rest) + edge;
}

Tap tap_at(Val at, Val weight, Val size, const std::string& padding, bool align_corners) {
  const Val low = like(0, at), high = size - 1.0;
  Val inside = at;
  if (padding == "reflection") inside = reflected(at, size, align_corners);
  if (padding == "zeros") {
    const Val is_in = tf("LogicalAnd", {tf("GreaterEqual", {at, low}), tf("LessEqual", {at, high})});
    weight = where(is_in, weight, like(0, weight));
  }
  return {integer(minimum(maximum(inside, low), high)), weight};
}

/// The weights of the four neighbours of a place at fraction t behind the second one, with a = -0.75.
std::vector<Val> cubic_weights(Val t) {
  constexpr double a = -0.75;
  const auto near = [&](Val x) { return (x * (a + 2) - (a + 3)) * x * x + 1.0; };
  const auto far = [&](Val x) { return ((x - 5.0) * x + 8.0) * (x * a) - 4 * a; };
  return {far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)};
}

void grid_sample(OnnxNode& n) {
  const Val x = n.in(0), grid = cast(n.in(1), DType::Float64);
  const int axes = x.rank() - 2;
  const std::string mode = n.s("mode", "linear"), padding = n.s("padding_mode", "zeros");
  const bool align = n.i("align_corners", 0) != 0;
  std::vector<Taps> taps;
  Val batch;
  for (int axis = 0; axis < axes; ++axis) {
    const int last = grid.rank() - 1;
    const Val g = squeeze(slice(grid, last, axes - 1 - axis, axes - axis), {last});
    const Val size = cast(size_of(x, axis + 2), DType::Float64);
    const Val at = align ? (g + 1.0) / 2.0 * (size - 1.0) : ((g + 1.0) * size - 1.0) / 2.0;
    const auto tap = [&](Val where_to, Val weight) { return tap_at(where_to, weight, size, padding, align); };
    if (axis == 0) {
      Ints line(static_cast<std::size_t>(g.rank()), 1);
      line[0] = -1;
      batch = broadcast_to(reshape(range(size_of(x, 0)), line), shape_of(g));
    }
    if (mode == "nearest") {
      taps.push_back({tap(tf("Rint", {at}), tf("OnesLike", {at}))});
      continue;
    }
    const Val below = tf("Floor", {at}), fraction = at - below;
    if (mode == "linear" || mode == "bilinear") {
      taps.push_back({tap(below, 1.0 - fraction), tap(below + 1.0, fraction)});
    } else if (mode == "cubic" || mode == "bicubic") {
      const std::vector<Val> w = cubic_weights(fraction);
      Taps four;
      for (int k = 0; k < 4; ++k) four.push_back(tap(below + (k - 1.0), w[static_cast<std::size_t>(k)]));
      taps.push_back(std::move(four));
    } else {
      throw InvalidArgument("mode '" + mode + "' is not supported");
    }
  }
  const Ints channels_last = moving(x.rank(), 1, x.rank() - 1);
  const Val y = sample(transpose(x, channels_last), batch, taps, add);
  n.out(0, transpose(y, moving(x.rank(), x.rank() - 1, 1)));
}

/// Places in [-1, 1] under theta [N, d, d + 1], for an image of size [N, C, d...].
void affine_grid(OnnxNode& n) {
  const Val theta = n.in(0), size = cast(n.in(1), DType::Int64);
  const int axes = size.list_length() - 2;
  if (axes < 1) throw InvalidArgument("the size has no spatial axes");
  const Val shape = slice(size, 0, 2, axes + 2);
  const bool align = n.i("align_corners", 0) != 0;
  std::vector<Val> parts;  // the last axis of the image first
  for (int axis = axes; axis-- > 0;) {
    const Val count = reshape(slice(shape, 0, axis, axis + 1), Ints{}), length = cast(count, theta.dtype());
    const Val i = cast(range(count), theta.dtype());
    const Val at = align ? i * 2.0 / (length - 1.0) - 1.0 : (i * 2.0 + 1.0) / length - 1.0;
    Ints line(static_cast<std::size_t>(axes), 1);
    line[static_cast<std::size_t>(axis)] = -1;
    parts.push_back(broadcast_to(reshape(at, line), shape));
  }
  parts.push_back(broadcast_to(like(1, theta), shape));
  const Val places = reshape(pack(parts, axes), Ints{1, -1, axes + 1});
  const Val moved = tf("BatchMatMulV2", {places, theta}, {{"adj_y", true}});
  n.out(0, reshape(moved, concat({slice(size, 0, 0, 1), shape, n.b.ints({axes})}, 0)));
}

// ----------------------------------------------------------------------------------------------------
// RoiAlign

/// Two taps a place; what lies more than an element outside counts nothing, less than that the border.
Taps border_taps(Val at, Val size) {
  const Val low = like(0, at), high = size - 1.0;
  const Val is_in = tf("LogicalAnd", {tf("GreaterEqual", {at, like(-1, at)}), tf("LessEqual", {at, size})});
  const Val inside = minimum(maximum(at, low), high);
  const Val below = tf("Floor", {inside}), fraction = inside - below;
  const auto weight = [&](Val w) { return where(is_in, w, like(0, w)); };
  return {{integer(below), weight(1.0 - fraction)}, {integer(minimum(below + 1.0, high)), weight(fraction)}};
}

void roi_align(OnnxNode& n) {
  const Val x = n.in(0), rois = cast(n.in(1), DType::Float64);
  const std::int64_t out_h = n.positive("output_height", 1), out_w = n.positive("output_width", 1);
  if (n.i("sampling_ratio", 0) <= 0)
    throw InvalidArgument("sampling_ratio 0, which depends on the regions, is not supported");
  const std::int64_t samples = n.positive("sampling_ratio", 0);
  const bool half_pixel =
      n.opset >= 16 && n.s("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  const double scale = n.f("spatial_scale", 1), offset = half_pixel ? 0.5 : 0;
  const auto places = [&](int axis, std::int64_t count) {  // [regions, count * samples]
    const auto corner = [&](int i) { return slice(rois, 1, i, i + 1) * scale - offset; };
    const Val start = corner(1 - axis);
    Val length = corner(3 - axis) - start;
    if (!half_pixel) length = maximum(length, like(1, length));
    const Val at =
        cast(range(n.b.number(static_cast<double>(count * samples), DType::Int64)), DType::Float64);
    return start + expand_dims((at + 0.5) / static_cast<double>(count * samples), 0) * length;
  };
  const Val y = places(0, out_h), x_places = places(1, out_w);
  const Val shape = pack({size_of(rois, 0), n.b.number(static_cast<double>(out_h * samples), DType::Int64),
                          n.b.number(static_cast<double>(out_w * samples), DType::Int64)},
                         0);
  const auto spread = [&](Val v, int axis) { return broadcast_to(expand_dims(v, axis), shape); };
  const auto real_size = [&](int axis) { return cast(size_of(x, axis), DType::Float64); };
  const std::vector<Taps> taps{border_taps(spread(y, 2), real_size(2)),
                               border_taps(spread(x_places, 1), real_size(3))};
  const Val batch = broadcast_to(reshape(integer(n.in(2)), Ints{-1, 1, 1}), shape);
  const bool is_max = n.s("mode", "avg") == "max";
  const Val values = sample(transpose(x, {0, 2, 3, 1}), batch, taps, is_max ? maximum : add);
  const Val bins = reshape(values, Ints{-1, out_h, samples, out_w, samples, x.static_dim(1)});
  n.out(0, transpose(reduce(is_max ? "Max" : "Mean", bins, {2, 4}), {0, 3, 1, 2}));
}

}  // namespace

void add_sampling(Translations& t) {
  t.add("GridSample", grid_sample);
  t.add("AffineGrid", affine_grid);
  t.add("RoiAlign", roi_align);
}

}  // namespace braid::onnx
