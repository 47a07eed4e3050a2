// Pooling. TensorFlow's MaxPool, AvgPool and their kin of volumes do the common case: a series is an image of
// one row, and averages whose pads are not SAME are those of a padded image. Everything else (dilations,
// indices, other types) is made of slices: a window of k positions is k strided slices of the padded image,
// which are combined. Windows are separable, so the slices are taken axis by axis where their places do not
// matter.
#include <algorithm>
#include <functional>
#include <limits>

#include "base/error.h"
#include "engine/import/onnx/windows.h"

namespace braid::onnx {
namespace {

Ints with_batch(const Ints& spatial) {
  Ints all{0, 0};
  all.insert(all.end(), spatial.begin(), spatial.end());
  return all;
}

Ints sum_of(Ints a, const Ints& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

/// The k-th position of all windows along one spatial axis of a padded image.
Val position(Val padded, const WindowSpec& w, int axis, std::int64_t k) {
  const auto i = static_cast<std::size_t>(axis);
  const std::int64_t first = k * w.dilations[i], behind = w.extent(axis) - 1 - first;
  return slice(padded, axis + 2, first, behind == 0 ? kToEnd : -behind, w.strides[i]);
}

Val combine(Val padded, const WindowSpec& w, Val (*with)(Val, Val)) {
  if (w.is_same) throw InvalidArgument("its pads are SAME, so the image's sizes must be known (--shape)");
  for (int axis = 0; axis < w.axes(); ++axis) {
    check_unrolled(w.kernel[static_cast<std::size_t>(axis)], "positions of a window");
    Val result;
    for (std::int64_t k = 0; k < w.kernel[static_cast<std::size_t>(axis)]; ++k) {
      const Val part = position(padded, w, axis, k);
      result = result ? with(result, part) : part;
    }
    padded = result;
  }
  return padded;
}

Val sum(Val a, Val b) { return a + b; }

double lowest(DType dtype) {
  if (is_floating(dtype)) return -std::numeric_limits<double>::infinity();
  if (dtype == DType::Int8) return -128;
  return dtype == DType::UInt8 ? 0 : std::numeric_limits<std::int32_t>::min();
}

/// TensorFlow's ops take the window, whose pads are those of `w` and `extra` behind.
bool has_op(const WindowSpec& w, Val x, const Ints& extra) {
  bool fits = w.axes() <= 3 && (x.dtype() == DType::Float32 || x.dtype() == DType::Float64);
  for (std::size_t i = 0; i < extra.size(); ++i) {
    fits = fits && w.dilations[i] == 1 && !(w.is_same && extra[i] != 0);
    fits = fits && w.before[i] >= 0 && w.before[i] < w.kernel[i];
    fits = fits && w.after[i] >= 0 && w.after[i] + extra[i] < w.kernel[i];
  }
  return fits;
}

bool are_zeros(const Ints& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](std::int64_t number) { return number == 0; });
}

AttrMap pool_attrs(const WindowSpec& w) {
  return {{"ksize", behind_channels(w.kernel)},
          {"strides", behind_channels(w.strides)},
          {"data_format", w.axes() == 3 ? "NCDHW" : "NCHW"}};
}

/// Maxima of three spatial axes, of which TensorFlow's op has no paddings of its own.
Val max_of_volumes(Val x, const WindowSpec& w) {
  AttrMap attrs = pool_attrs(w);
  const bool same = is_same_padding(w, x);
  attrs.set("padding", same ? "SAME" : "VALID");
  attrs.set("_first_maximum", true);
  if (!same) x = pad(x, with_batch(w.before), with_batch(w.after), like(lowest(x.dtype()), x));
  return tf("MaxPool3D", {x}, attrs);
}

/// Maxima of up to three spatial axes.
Val max_of_images(Val x, const WindowSpec& w) {
  if (w.axes() == 1) return squeeze(max_of_images(expand_dims(x, 2), planar(w)), {2});
  if (w.axes() == 3) return max_of_volumes(x, w);
  AttrMap attrs = pool_attrs(w);
  set_padding(attrs, w);
  return tf("MaxPool", {x}, attrs);
}

/// Where each maximum is in its image, counted over the whole tensor; of equal ones the first.
Val places_of_maxima(OnnxNode& n, Val x, Val padded, const WindowSpec& w, const Ints& after) {
  // An image of places beside the image of values, both cut into windows.
  const Val count = tf("Size", {x}, {{"out_type", DType::Int64}});
  Val own = reshape(range(count), shape_of(x));
  if (n.i("storage_order", 0) != 0) {
    Ints order{0, 1};
    for (int axis = w.axes(); axis-- > 0;) order.push_back(axis + 2);
    const Val turned_shape = gather(shape_of(x), ints(x, order), 0);
    own = transpose(reshape(range(count), turned_shape), inverse(order));
  }
  const Val places = pad(own, with_batch(w.before), with_batch(after), like(-1, own));
  std::int64_t positions = 1;
  for (const std::int64_t size : w.kernel)
    check_unrolled(positions = checked_times(positions, size), "positions of a window");
  Val best, best_place;
  const std::function<void(Val, Val, int)> visit = [&](Val values, Val at, int axis) {
    if (axis == w.axes()) {
      if (!best) {
        best = values;
        best_place = at;
        return;
      }
      const Val better = tf("Greater", {values, best});
      best_place = where(better, at, best_place);
      best = maximum(best, values);
      return;
    }
    for (std::int64_t k = 0; k < w.kernel[static_cast<std::size_t>(axis)]; ++k)
      visit(position(values, w, axis, k), position(at, w, axis, k), axis + 1);
  };
  visit(padded, places, 0);
  return best_place;
}

void max_pool(OnnxNode& n) {
  const Val x = n.in(0);
  const WindowSpec w = read_window(n, x, n.is("kernel_shape"));
  const Ints extra = ceil_extra(w, x, n.i("ceil_mode", 0) != 0);
  if (has_op(w, x, extra) && !n.wants(1)) {
    WindowSpec all = w;
    all.after = sum_of(w.after, extra);
    return n.out(0, max_of_images(x, all));
  }
  const Ints after = sum_of(w.after, extra);
  // Small integers have room for what is less than all of them in int32.
  const Val wide = is_floating(x.dtype()) ? x : cast(x, DType::Int32);
  const Val padded = pad(wide, with_batch(w.before), with_batch(after), like(lowest(x.dtype()), wide));
  n.out(0, cast(combine(padded, w, maximum), x.dtype()));
  if (n.wants(1)) n.out(1, places_of_maxima(n, x, padded, w, after));
}

/// Averages of up to three spatial axes, of all positions that windows without pads have.
Val mean_of_images(Val x, const WindowSpec& w, const char* padding) {
  if (w.axes() == 1) return squeeze(mean_of_images(expand_dims(x, 2), planar(w), padding), {2});
  AttrMap attrs = pool_attrs(w);
  attrs.set("padding", padding);
  return tf(w.axes() == 3 ? "AvgPool3D" : "AvgPool", {x}, attrs);
}

/// How many positions of each window count, [1, 1, spatial...]: those of the image, and pads where they do,
/// but none of `extra`.
Val counted_positions(Val x, const WindowSpec& w, const Ints& extra, bool counts_pads) {
  std::vector<Val> ones_shape{x.made_by().number(1, DType::Int64), x.made_by().number(1, DType::Int64)};
  for (int axis = 0; axis < w.axes(); ++axis) ones_shape.push_back(size_of(x, axis + 2));
  Val ones = broadcast_to(like(1, x), pack(ones_shape, 0));
  const Ints none(extra.size(), 0);
  ones = pad(ones, with_batch(w.before), with_batch(w.after), like(counts_pads ? 1 : 0, x));
  return combine(pad(ones, with_batch(none), with_batch(extra), like(0, x)), w, sum);
}

/// Sums of windows over how many positions count.
void average_pool(OnnxNode& n) {
  const Val x = n.in(0);
  const WindowSpec w = read_window(n, x, n.is("kernel_shape"));
  const Ints extra = ceil_extra(w, x, n.i("ceil_mode", 0) != 0);
  const bool counts_pads = n.i("count_include_pad", 0) != 0;
  const bool has_pads = w.is_same || !are_zeros(w.before) || !are_zeros(w.after);
  const bool is_whole = are_zeros(extra) && (!has_pads || counts_pads);  // all windows count all positions
  const bool is_same = are_zeros(extra) && has_pads && !counts_pads && is_same_padding(w, x);
  if (has_op(w, x, extra) && is_same) return n.out(0, mean_of_images(x, w, "SAME"));
  const Ints after = sum_of(w.after, extra);
  const Val padded = are_zeros(w.before) && are_zeros(after)
                         ? x
                         : pad(x, with_batch(w.before), with_batch(after), like(0, x));
  if (!has_op(w, x, extra) || w.is_same)
    return n.out(0, combine(padded, w, sum) / counted_positions(x, w, extra, counts_pads));
  const Val mean = mean_of_images(padded, w, "VALID");
  if (is_whole) return n.out(0, mean);
  double positions = 1;
  for (const std::int64_t size : w.kernel) positions *= static_cast<double>(size);
  n.out(0, mean * (like(positions, x) / counted_positions(x, w, extra, counts_pads)));
}

void lp_pool(OnnxNode& n) {
  const Val x = n.in(0);
  const WindowSpec w = read_window(n, x, n.is("kernel_shape"));
  const Ints after = sum_of(w.after, ceil_extra(w, x, n.i("ceil_mode", 0) != 0));
  const double p = n.opset < 2 ? n.f("p", 2) : static_cast<double>(n.i("p", 2));
  const Val powers = tf("Pow", {tf("Abs", {x}), like(p, x)});
  const Val sums = combine(pad(powers, with_batch(w.before), with_batch(after), like(0, x)), w, sum);
  n.out(0, tf("Pow", {sums, like(1 / p, x)}));
}

void global_average_pool(OnnxNode& n) {
  n.out(0, reduce("Mean", n.in(0), all_axes(n.in(0).rank(), 2), true));
}
void global_max_pool(OnnxNode& n) { n.out(0, reduce("Max", n.in(0), all_axes(n.in(0).rank(), 2), true)); }

void global_lp_pool(OnnxNode& n) {
  const Val x = n.in(0);
  const auto p = static_cast<double>(n.i("p", 2));
  const Val sums = reduce("Sum", tf("Pow", {tf("Abs", {x}), like(p, x)}), all_axes(x.rank(), 2), true);
  n.out(0, tf("Pow", {sums, like(1 / p, x)}));
}

/// Maxima back at their places, zeros elsewhere.
void max_unpool(OnnxNode& n) {
  const Val x = n.in(0);
  const WindowSpec w = read_window(n, x, n.is("kernel_shape"));
  std::vector<Val> sizes{size_of(x, 0), size_of(x, 1)};
  for (int axis = 0; axis < w.axes(); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    const double more = static_cast<double>(w.kernel[i] - w.before[i] - w.after[i]);
    sizes.push_back((size_of(x, axis + 2) - 1.0) * static_cast<double>(w.strides[i]) + more);
  }
  // The places count in the tensor that was pooled, which may be smaller than the one that is asked for.
  const Val own = pack(sizes, 0), wanted = n.has(2) ? cast(n.in(2), DType::Int64) : own;
  Val left = reshape(n.in(1), Ints{-1}), flat = like(0, left);
  Val factor = like(1, left);
  const int rank = x.rank();
  for (int axis = rank; axis-- > 0;) {
    const Val size = reshape(slice(own, 0, axis, axis + 1), Ints{});
    flat = flat + tf("FloorMod", {left, size}) * factor;
    left = tf("FloorDiv", {left, size});
    factor = factor * reshape(slice(wanted, 0, axis, axis + 1), Ints{});
  }
  const Val values = reshape(x, Ints{-1});
  const Val written = tf("ScatterNd", {expand_dims(flat, 1), values, reshape(factor, Ints{1})});
  n.out(0, reshape(written, wanted));
}

}  // namespace

void add_pooling(Translations& t) {
  t.add("MaxPool", max_pool);
  t.add("AveragePool", average_pool);
  t.add("LpPool", lp_pool);
  t.add("GlobalAveragePool", global_average_pool);
  t.add("GlobalMaxPool", global_max_pool);
  t.add("GlobalLpPool", global_lp_pool);
  t.add("MaxUnpool", max_unpool);
}

}  // namespace braid::onnx
