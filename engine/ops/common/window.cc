#include "engine/ops/common/window.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <vector>

namespace braid {
namespace {

/// The numbers of attribute `name` on the image axes; they must be 1 on the others.
std::pair<std::int64_t, std::int64_t> image_pair(const AttrMap& attrs, const char* name,
                                                 const ImageAxes& axes, const Fail& fail) {
  const auto list = attrs.get(name, std::vector<std::int64_t>{1, 1, 1, 1});
  if (list.size() != 4) fail(fmt::format("attribute {} must have 4 numbers, got {}", name, list.size()));
  const auto at = [&](int axis) { return list[static_cast<std::size_t>(axis)]; };
  if (at(axes.n) != 1 || at(axes.c) != 1)
    fail(fmt::format("attribute {} must be 1 on the batch and channel axes", name));
  constexpr std::int64_t kLargest = 1 << 20;  // what libraries compute with these numbers has 32 bits
  if (at(axes.h) < 1 || at(axes.w) < 1) fail(fmt::format("attribute {} must be at least 1", name));
  if (at(axes.h) > kLargest || at(axes.w) > kLargest)
    fail(fmt::format("attribute {} must be at most {}", name, kLargest));
  return {at(axes.h), at(axes.w)};
}

}  // namespace

Window read_window(const AttrMap& attrs, const Fail& fail) {
  Window window;
  const std::string format = attrs.get("data_format", std::string("NHWC"));
  if (format == "NCHW")
    window.axes = {.n = 0, .h = 2, .w = 3, .c = 1};
  else if (format != "NHWC")
    fail("attribute data_format must be NHWC or NCHW, got '" + format + "'");
  std::tie(window.h.stride, window.w.stride) = image_pair(attrs, "strides", window.axes, fail);
  std::tie(window.h.dilation, window.w.dilation) = image_pair(attrs, "dilations", window.axes, fail);

  const std::string padding = attrs.get("padding", std::string("VALID"));
  if (padding == "SAME") {
    window.padding = Padding::Same;
  } else if (padding == "EXPLICIT") {
    window.padding = Padding::Explicit;
    const auto pads = attrs.get("explicit_paddings", std::vector<std::int64_t>{});
    if (pads.size() != 8) fail(fmt::format("explicit_paddings must have 8 numbers, got {}", pads.size()));
    if (std::ranges::any_of(pads, [](std::int64_t p) { return p < 0; }))
      fail("explicit_paddings has a negative");
    constexpr std::int64_t kMost = 1 << 30;
    if (std::ranges::any_of(pads, [](std::int64_t p) { return p > kMost; }))
      fail(fmt::format("explicit_paddings must be at most {}", kMost));
    const auto pair = [&](int axis) {
      return std::pair(pads[static_cast<std::size_t>(2 * axis)],
                       pads[static_cast<std::size_t>(2 * axis + 1)]);
    };
    if (pair(window.axes.n) != std::pair<std::int64_t, std::int64_t>{} ||
        pair(window.axes.c) != std::pair<std::int64_t, std::int64_t>{})
      fail("explicit_paddings must be 0 on the batch and channel axes");
    std::tie(window.h.pad_before, window.h.pad_after) = pair(window.axes.h);
    std::tie(window.w.pad_before, window.w.pad_after) = pair(window.axes.w);
  } else if (padding != "VALID") {
    fail("attribute padding must be SAME, VALID or EXPLICIT, got '" + padding + "'");
  }
  return window;
}

std::int64_t resolve_axis(WindowAxis& axis, Padding padding, std::int64_t in, const Fail& fail) {
  if (in == Shape::kUnknown || axis.kernel == Shape::kUnknown) return Shape::kUnknown;
  if (padding == Padding::Same) {
    const std::int64_t out = (in + axis.stride - 1) / axis.stride;
    const std::int64_t total = std::max<std::int64_t>((out - 1) * axis.stride + axis.extent() - in, 0);
    axis.pad_before = total / 2;
    axis.pad_after = total - total / 2;
    return out;
  }
  const std::int64_t padded = in + axis.pad_before + axis.pad_after;
  if (axis.extent() > padded)
    fail(fmt::format("a window of {} does not fit an input of {} with paddings {} and {}", axis.extent(), in,
                     axis.pad_before, axis.pad_after));
  return (padded - axis.extent()) / axis.stride + 1;
}

Shape image_shape(const ImageAxes& axes, std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) {
  Shape shape{n, n, n, n};
  shape.set_dim(axes.h, h);
  shape.set_dim(axes.w, w);
  shape.set_dim(axes.c, c);
  return shape;
}

}  // namespace braid
