#include "engine/import/onnx/windows.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace braid::onnx {

namespace {

bool all_zero(const Ints& v) {
  return std::all_of(v.begin(), v.end(), [](std::int64_t x) { return x == 0; });
}

}  // namespace

void set_padding(AttrMap& attrs, const WindowSpec& w) {
  if (w.is_same) return attrs.set("padding", "SAME");
  if (all_zero(w.before) && all_zero(w.after)) return attrs.set("padding", "VALID");
  Ints paddings{0, 0, 0, 0};
  for (std::size_t axis = 0; axis < w.before.size(); ++axis)
    paddings.insert(paddings.end(), {w.before[axis], w.after[axis]});
  attrs.set("padding", "EXPLICIT");
  attrs.set("explicit_paddings", std::move(paddings));
}

Ints behind_channels(const Ints& spatial) {
  Ints all{1, 1};
  all.insert(all.end(), spatial.begin(), spatial.end());
  return all;
}

WindowSpec planar(const WindowSpec& w) {
  const auto two = [](const Ints& v, std::int64_t fallback) {
    return v.size() == 1 ? Ints{fallback, v[0]} : Ints(v.end() - 2, v.end());
  };
  return {two(w.kernel, 1), two(w.strides, 1), two(w.dilations, 1), two(w.before, 0), two(w.after, 0)};
}

bool is_same_padding(const WindowSpec& w, Val x) {
  if (w.is_same) return true;
  for (std::size_t i = 0; i < w.kernel.size(); ++i) {
    const std::int64_t in = x.dim(static_cast<int>(i) + 2);
    if (in == Shape::kUnknown) return false;
    const std::int64_t out = (in + w.strides[i] - 1) / w.strides[i];
    const std::int64_t total =
        std::max<std::int64_t>((out - 1) * w.strides[i] + w.extent(static_cast<int>(i)) - in, 0);
    if (w.before[i] != total / 2 || w.after[i] != total - total / 2) return false;
  }
  return true;
}

WindowSpec read_plain_window(OnnxNode& n, Val x, Ints kernel) {
  const std::size_t axes = kernel.size();
  if (axes == 0) throw InvalidArgument("the window has no axes");
  if (x.shape().has_rank() && static_cast<std::size_t>(x.rank()) != axes + 2)
    throw InvalidArgument(
        fmt::format("a window of {} axes does not fit an input of shape {}", axes, x.shape().to_string()));
  WindowSpec w;
  w.kernel = std::move(kernel);
  w.strides = n.is("strides", Ints(axes, 1));
  w.dilations = n.is("dilations", Ints(axes, 1));
  const Ints pads = n.is("pads", Ints(2 * axes, 0));
  if (w.strides.size() != axes || w.dilations.size() != axes || pads.size() != 2 * axes)
    throw InvalidArgument("strides, dilations and pads do not fit the kernel");
  w.before.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(axes));
  w.after.assign(pads.begin() + static_cast<std::ptrdiff_t>(axes), pads.end());
  // So that an extent, and what is added to it, fits into 63 bits.
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  for (const Ints* numbers : {&w.kernel, &w.strides, &w.dilations})
    for (const std::int64_t number : *numbers)
      if (number < 1 || number > kMost)
        throw InvalidArgument(fmt::format("a window's size, stride or dilation is {}", number));
  for (const std::int64_t pad : pads)
    if (pad < -kMost || pad > kMost) throw InvalidArgument(fmt::format("a pad is {}", pad));
  return w;
}

WindowSpec read_window(OnnxNode& n, Val x, Ints kernel) {
  WindowSpec w = read_plain_window(n, x, std::move(kernel));
  const std::size_t axes = w.kernel.size();
  const std::string mode = n.s("auto_pad", "NOTSET");
  if (mode == "NOTSET" || mode.empty()) return w;
  for (std::size_t i = 0; i < axes; ++i) {
    w.before[i] = w.after[i] = 0;
    if (mode == "VALID") continue;
    const std::int64_t extent = w.extent(static_cast<int>(i));
    std::int64_t total = extent - 1;  // of stride 1, for any size
    if (w.strides[i] != 1) {
      const std::int64_t in = x.dim(static_cast<int>(i) + 2);
      if (in == Shape::kUnknown && mode == "SAME_UPPER" && axes >= 2) {
        w.before.assign(axes, 0);
        w.after.assign(axes, 0);
        w.is_same = true;
        return w;
      }
      const std::int64_t size = x.static_dim(static_cast<int>(i) + 2);
      const std::int64_t out = (size + w.strides[i] - 1) / w.strides[i];
      total = std::max<std::int64_t>((out - 1) * w.strides[i] + extent - size, 0);
    }
    w.before[i] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    w.after[i] = total - w.before[i];
  }
  return w;
}

Ints ceil_extra(const WindowSpec& w, Val x, bool ceil_mode) {
  Ints extra(w.kernel.size(), 0);
  for (std::size_t i = 0; ceil_mode && i < extra.size(); ++i) {
    const std::int64_t stride = w.strides[i];
    // One window more than fits, and no more; it begins within the image where it is this large.
    if (x.dim(static_cast<int>(i) + 2) == Shape::kUnknown &&
        w.extent(static_cast<int>(i)) >= w.after[i] + stride) {
      extra[i] = stride - 1;
      continue;
    }
    const std::int64_t in = x.static_dim(static_cast<int>(i) + 2);
    const std::int64_t span = in + w.before[i] + w.after[i] - w.extent(static_cast<int>(i));
    std::int64_t windows = (span + stride - 1) / stride + 1;
    if ((windows - 1) * stride >= in + w.before[i]) --windows;  // a window must begin before the end
    extra[i] = std::max<std::int64_t>((windows - 1) * stride - span, 0);
  }
  return extra;
}

}  // namespace braid::onnx
