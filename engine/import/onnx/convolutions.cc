// Convolutions. Images stay in ONNX's order (NCHW, NCDHW); filters [out, in / groups, kernel...] become
// TensorFlow's [kernel..., in / groups, out]. One spatial axis is two of which one has size 1. One channel a
// group is TensorFlow's depthwise op.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/error.h"
#include "engine/import/onnx/windows.h"

namespace braid::onnx {
namespace {

AttrMap attrs_of(const WindowSpec& w) {
  AttrMap attrs{{"strides", Ints{1, 1, w.strides[0], w.strides[1]}},
                {"dilations", Ints{1, 1, w.dilations[0], w.dilations[1]}},
                {"data_format", "NCHW"}};
  set_padding(attrs, w);
  return attrs;
}

/// Throws: InvalidArgument when so many groups cannot share so many channels, where those are known.
void check_groups(std::int64_t groups, std::int64_t channels) {
  if (groups < 1 || (channels >= 0 && channels % groups != 0))
    throw InvalidArgument(fmt::format("{} channels are no {} groups", channels, groups));
}

/// x [N, C, h, w], filter [out, in / groups, h, w].
Val convolve_planes(Val x, Val filter, const WindowSpec& w, std::int64_t groups) {
  const AttrMap attrs = attrs_of(w);
  check_groups(groups, filter.rank() > 0 ? filter.dim(0) : 0);
  if (groups > 1 && filter.static_dim(1) == 1) {
    const std::int64_t out = filter.static_dim(0);
    const Val by_channel =
        reshape(transpose(filter, {2, 3, 0, 1}), Ints{w.kernel[0], w.kernel[1], groups, out / groups});
    return tf("DepthwiseConv2dNative", {x, by_channel}, attrs);
  }
  return tf("Conv2D", {x, transpose(filter, {2, 3, 1, 0})}, attrs);
}

AttrMap volume_attrs(const WindowSpec& w) {
  AttrMap attrs{{"strides", behind_channels(w.strides)},
                {"dilations", behind_channels(w.dilations)},
                {"data_format", "NCDHW"}};
  set_padding(attrs, w);
  return attrs;
}

/// x [N, C, d, h, w], filter [out, in / groups, d, h, w].
Val convolve_volumes(Val x, Val filter, const WindowSpec& w, std::int64_t groups) {
  check_groups(groups, filter.rank() > 0 ? filter.dim(0) : 0);
  return tf("Conv3D", {x, transpose(filter, {2, 3, 4, 1, 0})}, volume_attrs(w));
}

/// Any number of spatial axes up to three.
Val convolve(Val x, Val filter, const WindowSpec& w, std::int64_t groups) {
  if (w.axes() == 1)
    return squeeze(convolve_planes(expand_dims(x, 2), expand_dims(filter, 2), planar(w), groups), {2});
  if (w.axes() == 2) return convolve_planes(x, filter, w, groups);
  if (w.axes() != 3) throw InvalidArgument("only one, two and three spatial axes are supported");
  return convolve_volumes(x, filter, w, groups);
}

Ints kernel_of(OnnxNode& n, Val filter) {
  Ints kernel;
  for (int axis = 2; axis < filter.rank(); ++axis) kernel.push_back(filter.static_dim(axis));
  if (n.has_attr("kernel_shape") && n.is("kernel_shape") != kernel)
    throw InvalidArgument("kernel_shape is not the filter's");
  return kernel;
}

/// PyTorch writes zeros for the bias of volumes that have none, in a shape that does not fit: they go. A bias
/// that fits may be trained, whatever it begins with.
Val with_bias(Val y, Val bias) {
  const bool fits = bias.rank() == 1 && (y.dim(1) < 0 || bias.dim(0) == y.dim(1));
  if (const Tensor* known = bias.known(); known && !fits && known->dtype() == DType::Float32) {
    const std::span<const float> all = known->data<float>();
    if (std::all_of(all.begin(), all.end(), [](float x) { return x == 0; })) return y;
  }
  Ints shape(static_cast<std::size_t>(y.rank()), 1);
  shape[1] = -1;
  return y + reshape(bias, shape);
}

void conv(OnnxNode& n) {
  const DType dtype = n.in(0).dtype();
  const Val x = cast(n.in(0), DType::Float32), filter = cast(n.in(1), DType::Float32);
  Val y = convolve(x, filter, read_window(n, x, kernel_of(n, filter)), n.i("group", 1));
  if (n.has(2)) y = with_bias(y, cast(n.in(2), DType::Float32));
  n.out(0, cast(y, dtype));
}

/// Products of 8-bit numbers are exact in float32 as long as their sum stays below 2^24.
Val integer_convolution(OnnxNode& n, Val x, Val x_zero, Val filter, Val filter_zero) {
  Val a = cast(x, DType::Float32), f = cast(filter, DType::Float32);
  if (x_zero) a = a - reshape(cast(x_zero, DType::Float32), Ints{});
  if (filter_zero) {
    Val zero = cast(filter_zero, DType::Float32);
    if (zero.rank() == 1 && zero.dim(0) != 1) {
      Ints shape(static_cast<std::size_t>(f.rank()), 1);
      shape[0] = -1;
      zero = reshape(zero, shape);
    } else {
      zero = reshape(zero, Ints{});
    }
    f = f - zero;
  }
  return convolve(a, f, read_window(n, a, kernel_of(n, f)), n.i("group", 1));
}

void conv_integer(OnnxNode& n) {
  n.out(0,
        cast(integer_convolution(n, n.in(0), n.has(2) ? n.in(2) : Val(), n.in(1), n.has(3) ? n.in(3) : Val()),
             DType::Int32));
}

void qlinear_conv(OnnxNode& n) {
  Val y = integer_convolution(n, n.in(0), n.in(2), n.in(3), n.in(5));
  if (n.has(8)) y = with_bias(y, cast(n.in(8), DType::Float32));
  Val scale = reshape(n.in(1), Ints{}) * n.in(4) / reshape(n.in(6), Ints{});
  if (scale.rank() == 1) {
    Ints shape(static_cast<std::size_t>(y.rank()), 1);
    shape[1] = -1;
    scale = reshape(scale, shape);
  }
  const Val shifted = tf("Rint", {y * scale}) + cast(n.in(7), DType::Float32);
  const bool is_signed = n.in(7).dtype() == DType::Int8;
  const Val low = like(is_signed ? -128 : 0, shifted), high = like(is_signed ? 127 : 255, shifted);
  n.out(0, cast(minimum(maximum(shifted, low), high), n.in(7).dtype()));
}

// -------------------------------------------------------------------------------------------------
// transposed

/// x with stride - 1 zeros between neighbours along one axis.
Val spread(Val x, int axis, std::int64_t stride) {
  if (stride == 1) return x;
  const Val apart = expand_dims(x, axis + 1);
  Ints none(static_cast<std::size_t>(apart.rank()), 0), after = none;
  after[static_cast<std::size_t>(axis) + 1] = stride - 1;
  std::vector<Val> sizes;
  for (int a = 0; a < x.rank(); ++a) {
    const Val size = size_of(x, a);
    sizes.push_back(a == axis ? size * static_cast<double>(stride) : size);
  }
  return slice(reshape(pad(apart, none, after, like(0, x)), sizes), axis, 0, 1 - stride);
}

/// The filter [in, out / groups, kernel...] as that of a convolution over the spread image: turned around,
/// with groups' channels exchanged.
Val turned_filter(Val filter, std::int64_t groups) {
  const std::int64_t in = filter.static_dim(0), out = filter.static_dim(1);
  check_groups(groups, in);
  Ints spatial, apart{groups, in / groups, out}, order{0, 2, 1},
      together{checked_times(groups, out), in / groups};
  for (int a = 2; a < filter.rank(); ++a) {
    spatial.push_back(a);
    apart.push_back(filter.static_dim(a));
    together.push_back(filter.static_dim(a));
    order.push_back(a + 1);
  }
  const Val reversed = tf("ReverseV2", {filter, ints(filter, spatial)});
  return reshape(transpose(reshape(reversed, apart), order), together);
}

/// What a transposed convolution pads and has more, by axis.
struct Transposed {
  WindowSpec window;  // `before` and `after` are what is cut off the whole result
  Ints more;
};

/// Whether it is the gradient of a convolution of its result: nothing is negative, and the convolution has as
/// many places as x.
bool is_convolution_gradient(const Transposed& t) {
  for (std::size_t i = 0; i < t.more.size(); ++i)
    if (t.window.before[i] < 0 || t.window.after[i] < 0 || t.more[i] < 0 || t.more[i] >= t.window.strides[i])
      return false;
  return t.more.size() <= 3;
}

/// y of up to three spatial axes, x and filter [in, out / groups, kernel...].
Val convolution_gradient(Val x, Val filter, const Transposed& t, std::int64_t groups) {
  if (t.more.size() == 1) {
    const Transposed two{planar(t.window), Ints{0, t.more[0]}};
    return squeeze(convolution_gradient(expand_dims(x, 2), expand_dims(filter, 2), two, groups), {2});
  }
  const WindowSpec& w = t.window;
  check_groups(groups, x.dim(1));
  const std::int64_t channels = checked_times(groups, filter.static_dim(1));
  std::vector<Val> sizes{size_of(x, 0), x.made_by().number(static_cast<double>(channels), DType::Int64)};
  Ints known{x.dim(0), channels};
  for (int i = 0; i < w.axes(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t added = w.extent(i) - w.strides[at] - w.before[at] - w.after[at] + t.more[at];
    const Val size = size_of(x, i + 2) * static_cast<double>(w.strides[at]) + static_cast<double>(added);
    sizes.push_back(size);
    const auto value = known_ints(size);
    known.push_back(value ? value->front() : Shape::kUnknown);
    if (known.back() != Shape::kUnknown && known.back() <= 0) throw InvalidArgument("it cuts everything off");
  }
  if (w.axes() == 3)
    return refined(
        tf("Conv3DBackpropInputV2", {pack(sizes, 0), transpose(filter, {2, 3, 4, 1, 0}), x}, volume_attrs(w)),
        known);
  return refined(tf("Conv2DBackpropInput", {pack(sizes, 0), transpose(filter, {2, 3, 1, 0}), x}, attrs_of(w)),
                 known);
}

void conv_transpose(OnnxNode& n) {
  const DType dtype = n.in(0).dtype();
  Val x = cast(n.in(0), DType::Float32);
  const Val filter = cast(n.in(1), DType::Float32);
  const Ints kernel = kernel_of(n, filter);
  const std::size_t axes = kernel.size();
  const Ints more = n.is("output_padding", Ints(axes, 0)), wanted = n.is("output_shape");
  const WindowSpec asked = read_plain_window(n, x, kernel);
  const Ints& strides = asked.strides;
  if (more.size() != axes || (!wanted.empty() && wanted.size() < axes))
    throw InvalidArgument("output_padding or output_shape does not fit the kernel");
  const std::string mode = n.s("auto_pad", "NOTSET");
  WindowSpec w{kernel, Ints(axes, 1), asked.dilations, Ints(axes, 0), Ints(axes, 0)};
  Transposed whole{{kernel, strides, asked.dilations, Ints(axes, 0), Ints(axes, 0)}, more};
  for (std::size_t i = 0; i < axes; ++i) {
    const auto axis = static_cast<int>(i) + 2;
    const std::int64_t reach = w.extent(static_cast<int>(i));
    const std::int64_t beyond =
        checked_plus(reach - strides[i], more[i]);  // the whole result has in * stride + this
    std::int64_t before = asked.before[i], after = asked.after[i];
    const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
    if (same || !wanted.empty()) {
      std::int64_t total = beyond;
      if (!wanted.empty()) {
        const std::int64_t size = wanted[wanted.size() - axes + i];
        if (size < 0) throw InvalidArgument(fmt::format("output_shape has {}", size));
        total = checked_plus(total, checked_times(x.static_dim(axis), strides[i]) - size);
      }
      // What a larger output has more lies behind.
      before = total < 0 ? 0 : mode == "SAME_UPPER" ? total / 2 : total - total / 2;
      after = total - before;
    }
    whole.window.before[i] = before;
    whole.window.after[i] = after;
    w.before[i] = checked_plus(reach - 1, -before);
    w.after[i] = checked_plus(checked_plus(reach - 1, -after), more[i]);
  }
  const std::int64_t groups = n.i("group", 1);
  if (is_convolution_gradient(whole)) {
    Val y = convolution_gradient(x, filter, whole, groups);
    if (n.has(2)) y = with_bias(y, cast(n.in(2), DType::Float32));
    return n.out(0, cast(y, dtype));
  }
  for (std::size_t i = 0; i < axes; ++i) x = spread(x, static_cast<int>(i) + 2, strides[i]);
  // Pads larger than the window's reach cut the image off; they are not convolution's.
  Ints begin{0, 0}, end{kToEnd, kToEnd}, front{0, 0}, back{0, 0};
  for (std::size_t i = 0; i < axes; ++i) {
    begin.push_back(std::max<std::int64_t>(-w.before[i], 0));
    end.push_back(w.after[i] < 0 ? w.after[i] : kToEnd);
    front.push_back(std::max<std::int64_t>(w.before[i], 0));
    back.push_back(std::max<std::int64_t>(w.after[i], 0));
    w.before[i] = w.after[i] = 0;
  }
  x = tf("StridedSlice", {x, n.b.ints(begin), n.b.ints(end), n.b.ints(Ints(begin.size(), 1))});
  x = pad(x, front, back, like(0, x));
  Val y = convolve(x, turned_filter(filter, groups), w, groups);
  if (n.has(2)) y = with_bias(y, cast(n.in(2), DType::Float32));
  n.out(0, cast(y, dtype));
}

}  // namespace

void add_convolutions(Translations& t) {
  t.add("Conv", conv);
  t.add("ConvInteger", conv_integer);
  t.add("QLinearConv", qlinear_conv);
  t.add("ConvTranspose", conv_transpose);
}

}  // namespace braid::onnx
