#include "engine/ops/common/window.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <vector>

namespace braid {
namespace {

using Numbers = std::vector<std::int64_t>;

/// The axes of the window, each with what it moves along.
std::vector<std::pair<int, WindowAxis*>> spatial(Window& window) {
  const ImageAxes& axes = window.axes;
  if (!axes.volumes()) return {{axes.h, &window.h}, {axes.w, &window.w}};
  return {{axes.d, &window.d}, {axes.h, &window.h}, {axes.w, &window.w}};
}

/// Sets a member of the window's axes to the numbers of attribute `name`, which must be 1 on other axes.
void read_numbers(Window& window, const AttrMap& attrs, const char* name, std::int64_t WindowAxis::*member,
                  const Fail& fail) {
  const ImageAxes& axes = window.axes;
  const auto list = attrs.get(name, Numbers(static_cast<std::size_t>(axes.rank()), 1));
  if (list.size() != static_cast<std::size_t>(axes.rank()))
    fail(fmt::format("attribute {} must have {} numbers, got {}", name, axes.rank(), list.size()));
  const auto at = [&](int axis) { return list[static_cast<std::size_t>(axis)]; };
  if (at(axes.n) != 1 || at(axes.c) != 1)
    fail(fmt::format("attribute {} must be 1 on the batch and channel axes", name));
  constexpr std::int64_t kLargest = 1 << 20;  // what libraries compute with these numbers has 32 bits
  for (const auto& [axis, of] : spatial(window)) {
    if (at(axis) < 1) fail(fmt::format("attribute {} must be at least 1", name));
    if (at(axis) > kLargest) fail(fmt::format("attribute {} must be at most {}", name, kLargest));
    of->*member = at(axis);
  }
}

void read_paddings(Window& window, const AttrMap& attrs, const Fail& fail) {
  const auto pads = attrs.get("explicit_paddings", Numbers{});
  const ImageAxes& axes = window.axes;
  if (pads.size() != 2 * static_cast<std::size_t>(axes.rank()))
    fail(fmt::format("explicit_paddings must have {} numbers, got {}", 2 * axes.rank(), pads.size()));
  if (std::ranges::any_of(pads, [](std::int64_t p) { return p < 0; }))
    fail("explicit_paddings has a negative");
  constexpr std::int64_t kMost = 1 << 30;
  if (std::ranges::any_of(pads, [](std::int64_t p) { return p > kMost; }))
    fail(fmt::format("explicit_paddings must be at most {}", kMost));
  const auto pair = [&](int axis) {
    return std::pair(pads[static_cast<std::size_t>(2 * axis)], pads[static_cast<std::size_t>(2 * axis + 1)]);
  };
  if (pair(axes.n) != std::pair<std::int64_t, std::int64_t>{} ||
      pair(axes.c) != std::pair<std::int64_t, std::int64_t>{})
    fail("explicit_paddings must be 0 on the batch and channel axes");
  for (const auto& [axis, of] : spatial(window)) std::tie(of->pad_before, of->pad_after) = pair(axis);
}

}  // namespace

Window read_window(const AttrMap& attrs, const Fail& fail, bool volumes) {
  Window window;
  const std::string last = volumes ? "NDHWC" : "NHWC", first = volumes ? "NCDHW" : "NCHW";
  const std::string format = attrs.get("data_format", last);
  if (volumes) window.axes = {.n = 0, .h = 2, .w = 3, .c = 4, .d = 1};
  if (format == first)
    window.axes = volumes ? ImageAxes{.n = 0, .h = 3, .w = 4, .c = 1, .d = 2}
                          : ImageAxes{.n = 0, .h = 2, .w = 3, .c = 1};
  else if (format != last)
    fail(fmt::format("attribute data_format must be {} or {}, got '{}'", last, first, format));
  read_numbers(window, attrs, "strides", &WindowAxis::stride, fail);
  read_numbers(window, attrs, "dilations", &WindowAxis::dilation, fail);

  const std::string padding = attrs.get("padding", std::string("VALID"));
  if (padding == "SAME") {
    window.padding = Padding::Same;
  } else if (padding == "EXPLICIT") {
    window.padding = Padding::Explicit;
    read_paddings(window, attrs, fail);
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

Shape image_shape(const ImageAxes& axes, std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c,
                  std::int64_t d) {
  Shape shape(Numbers(static_cast<std::size_t>(axes.rank()), n));
  shape.set_dim(axes.h, h);
  shape.set_dim(axes.w, w);
  shape.set_dim(axes.c, c);
  if (axes.volumes()) shape.set_dim(axes.d, d);
  return shape;
}

}  // namespace braid
