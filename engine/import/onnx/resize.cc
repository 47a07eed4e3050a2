// Resize and Upsample, axis by axis: nearest is a gather, linear and cubic a product with the matrix of
// weights [out, in] that the coordinates make. Scales and sizes may be inputs, so the matrices are made by
// nodes; they fold where scales are constants. With t = (x - j) * min(scale, 1 if not antialias) the weights
// are, before they are normed,
//   linear  max(0, 1 - |t|)
//   cubic   (a + 2) |t|^3 - (a + 3) t^2 + 1 up to 1, a (|t|^3 - 5 t^2 + 8 |t| - 4) up to 2; a: cubic_coeff_a
// and what lies outside counts for the border, or not at all (exclude_outside).
#include <limits>

#include "base/error.h"
#include "engine/import/onnx/node.h"

namespace braid::onnx {
namespace {

constexpr DType kReal = DType::Float64;

Val real(Val x) { return cast(x, kReal); }

/// One axis: sizes as float64 scalars.
struct Axis {
  Val in, out, scale;
  Val exact;               // `out` before it is rounded
  Val roi_start, roi_end;  // tf_crop_and_resize only
};

Val coordinates(const Axis& a, const std::string& mode) {
  const Val x = real(range(a.out)), one = like(1, a.in);
  const Val half_pixel = (x + 0.5) / a.scale - 0.5;
  const Val is_single = tf("LessEqual", {a.out, one});
  if (mode == "half_pixel") return half_pixel;
  if (mode == "asymmetric") return x / a.scale;
  if (mode == "pytorch_half_pixel") return where(is_single, like(0, x), half_pixel);
  if (mode == "align_corners") return where(is_single, like(0, x), x * ((a.in - 1.0) / (a.exact - 1.0)));
  if (mode == "half_pixel_symmetric") {
    const Val adjustment = a.out / a.exact;
    return a.in / 2.0 * (1.0 - adjustment) + half_pixel;
  }
  if (mode == "tf_half_pixel_for_nn") return (x + 0.5) / a.scale;
  if (mode != "tf_crop_and_resize")
    throw InvalidArgument("coordinate_transformation_mode '" + mode + "' is not supported");
  const Val last = a.in - 1.0, step = (a.roi_end - a.roi_start) * last / (a.exact - 1.0);
  return where(is_single, 0.5 * (a.roi_start + a.roi_end) * last, a.roi_start * last + x * step);
}

Val clamped(Val x, Val size) { return minimum(maximum(x, like(0, x)), size - 1.0); }

Val nearest(Val x, int axis, Val at, const Axis& a, const std::string& mode) {
  Val rounded;
  if (mode == "round_prefer_floor")
    rounded = tf("Ceil", {at - 0.5});
  else if (mode == "round_prefer_ceil")
    rounded = tf("Floor", {at + 0.5});
  else if (mode == "floor" || mode == "ceil")
    rounded = tf(mode == "floor" ? "Floor" : "Ceil", {at});
  else
    throw InvalidArgument("nearest_mode '" + mode + "' is not supported");
  return gather(x, cast(clamped(rounded, a.in), DType::Int64), axis);
}

/// [out, in]
Val weights(OnnxNode& n, Val at, const Axis& a, bool cubic) {
  const Val one = like(1, a.scale);
  const Val stretch = n.i("antialias", 0) != 0 ? minimum(a.scale, one) : one;
  // Positions that a kernel may reach beyond the border: in front and behind `margin` each.
  const Val margin = tf("Ceil", {2.0 / stretch}) +
                     tf("Ceil", {tf("Abs", {reduce("Max", tf("Abs", {at}), {0}) - a.in})}) + 2.0;
  const Val j = real(range(a.in + margin * 2.0)) - margin;
  const Val t = tf("Abs", {(expand_dims(at, 1) - expand_dims(j, 0)) * stretch});
  Val w;
  if (cubic) {
    const double c = n.f("cubic_coeff_a", -0.75);
    const Val near = ((t * (c + 2)) - (c + 3)) * t * t + 1.0, far = (((t - 5.0) * t + 8.0) * t - 4.0) * c;
    w = where(tf("LessEqual", {t, one}), near, where(tf("Less", {t, one * 2.0}), far, like(0, t)));
  } else {
    w = maximum(1.0 - t, like(0, t));
  }
  const Val inside = clamped(j, a.in);
  if (n.i("exclude_outside", 0) != 0) w = where(tf("Equal", {inside, j}), w, like(0, w));
  w = w / reduce("Sum", w, {1}, true);
  const Val target = tf("Equal", {expand_dims(inside, 1), expand_dims(real(range(a.in)), 0)});
  return tf("MatMul", {w, cast(target, kReal)});
}

/// x times the matrix, along one axis.
Val weigh(Val x, int axis, Val matrix) {
  const int rank = x.rank();
  const Ints to_last = moving(rank, axis, rank - 1);
  const Val rows = transpose(x, to_last);
  const Val flat = reshape(rows, pack({x.made_by().number(-1, DType::Int64), size_of(rows, -1)}, 0));
  const Val y = tf("MatMul", {flat, cast(matrix, x.dtype())}, {{"transpose_b", true}});
  const Val shape = concat({slice(shape_of(rows), 0, 0, rank - 1), ints(x, {-1})}, 0);
  return transpose(reshape(y, shape), inverse(to_last));
}

/// Scales and sizes of the axes that are resized, as the inputs say them.
std::vector<Axis> read_axes(OnnxNode& n, const Ints& axes, Val scales, Val sizes) {
  std::vector<Axis> result;
  const Val x = n.in(0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    Axis a;
    a.in = real(size_of(x, positive_axis(axes[i], x.rank())));
    const auto at = static_cast<int>(i);
    if (sizes) {
      a.out = real(element(sizes, at));
      a.exact = a.out;
      a.scale = a.out / a.in;
    } else {
      a.scale = real(element(scales, at));
      a.exact = a.in * a.scale;
      a.out = tf("Floor", {a.exact});
    }
    result.push_back(a);
  }
  const std::string policy = n.s("keep_aspect_ratio_policy", "stretch");
  if (!sizes || policy == "stretch" || result.empty()) return result;
  Val common = result.front().scale;
  for (const Axis& a : result)
    common = policy == "not_larger" ? minimum(common, a.scale) : maximum(common, a.scale);
  for (Axis& a : result) {
    a.scale = common;
    a.exact = a.in * common;
    a.out = tf("Floor", {a.in * common + 0.5});
  }
  return result;
}

bool stays(const Axis& a, const std::string& transform) {
  const Tensor *scale = a.scale.known(), *in = a.in.known(), *out = a.out.known();
  if (!scale || transform == "tf_crop_and_resize") return false;
  return scale->data<double>()[0] == 1 && (!in || !out || in->data<double>()[0] == out->data<double>()[0]);
}

void resize_axes(OnnxNode& n, Val scales, Val sizes, const std::string& transform,
                 const std::string& rounding) {
  Val x = n.in(0);
  const std::string mode = n.s("mode", "nearest");
  const bool is_nearest = mode == "nearest", cubic = mode == "cubic";
  if (!is_nearest && !cubic && mode != "linear" && mode != "bilinear")
    throw InvalidArgument("mode '" + mode + "' is not supported");
  const Ints axes = n.is("axes", all_axes(x.rank()));
  std::vector<Axis> all = read_axes(n, axes, scales, sizes);
  Val outside;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    Axis& a = all[i];
    if (stays(a, transform)) continue;
    const int axis = positive_axis(axes[i], x.rank());
    if (transform == "tf_crop_and_resize") {
      a.roi_start = real(element(n.in(1), static_cast<int>(i)));
      a.roi_end = real(element(n.in(1), static_cast<int>(i + axes.size())));
    }
    const Val at = coordinates(a, transform);
    x = is_nearest ? nearest(x, axis, at, a, rounding) : weigh(x, axis, weights(n, at, a, cubic));
    if (transform != "tf_crop_and_resize") continue;
    Ints line(static_cast<std::size_t>(x.rank()), 1);
    line[static_cast<std::size_t>(axis)] = -1;
    const Val here = tf("LogicalOr", {tf("Less", {at, like(0, at)}), tf("Greater", {at, a.in - 1.0})});
    const Val placed = reshape(here, line);
    outside = outside ? tf("LogicalOr", {outside, placed}) : placed;
  }
  n.out(0, outside ? where(outside, like(n.f("extrapolation_value", 0), x), x) : x);
}

void resize(OnnxNode& n) {
  if (n.opset < 11) return resize_axes(n, n.in(1), {}, "asymmetric", "floor");
  const bool by_size = n.has(3);
  resize_axes(n, by_size ? Val() : n.in(2), by_size ? n.in(3) : Val(),
              n.s("coordinate_transformation_mode", "half_pixel"), n.s("nearest_mode", "round_prefer_floor"));
}

void upsample(OnnxNode& n) {
  Val scales;
  if (n.opset >= 9) {
    scales = n.in(1);
  } else {
    std::vector<float> values;
    for (const double scale : n.fs("scales")) values.push_back(static_cast<float>(scale));
    scales = n.b.constant(Tensor::from<float>({static_cast<std::int64_t>(values.size())}, values));
  }
  resize_axes(n, scales, {}, "asymmetric", "floor");
}

}  // namespace

void add_resize(Translations& t) {
  t.add("Resize", resize);
  t.add("Upsample", upsample);
}

}  // namespace braid::onnx
