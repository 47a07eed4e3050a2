#include "engine/ops/nn/pooling.h"

#include <fmt/format.h>

#include <algorithm>

namespace braid {

Pooling make_pooling(const Node& node, const Shape& in, const Fail& fail) {
  Pooling p;
  p.window = read_window(node.attrs, fail);
  const ImageAxes& axes = p.window.axes;
  const auto ksize = node.attrs.require<std::vector<std::int64_t>>("ksize");
  if (ksize.size() != 4 || ksize[static_cast<std::size_t>(axes.n)] != 1 ||
      ksize[static_cast<std::size_t>(axes.c)] != 1)
    fail("attribute ksize must have 4 numbers, 1 for batch and channels");
  p.window.h.kernel = ksize[static_cast<std::size_t>(axes.h)];
  p.window.w.kernel = ksize[static_cast<std::size_t>(axes.w)];
  if (p.window.h.kernel < 1 || p.window.w.kernel < 1) fail("attribute ksize must be at least 1");
  constexpr std::int64_t kMost = 1 << 30;
  if (p.window.h.kernel > kMost || p.window.w.kernel > kMost)
    fail(fmt::format("attribute ksize must be at most {}", kMost));
  for (WindowAxis* axis : {&p.window.h, &p.window.w})
    if (axis->pad_before >= axis->kernel || axis->pad_after >= axis->kernel)
      fail(fmt::format("a padding of {} hides a whole window of {}",
                       std::max(axis->pad_before, axis->pad_after), axis->kernel));
  p.images = in[axes.n];
  p.channels = in[axes.c];
  p.in_h = in[axes.h];
  p.in_w = in[axes.w];
  p.out_h = resolve_axis(p.window.h, p.window.padding, p.in_h, fail);
  p.out_w = resolve_axis(p.window.w, p.window.padding, p.in_w, fail);
  return p;
}

Shape pooled_shape(const Pooling& p) {
  return image_shape(p.window.axes, p.images, p.out_h, p.out_w, p.channels);
}

Pooling prepared_pooling(const PrepareContext& c, const Shape& in) {
  Pooling p = make_pooling(c.node, in, [&c](const std::string& message) { c.fail(message); });
  if (p.window.axes.nchw()) {
    p.images *= p.channels;
    p.channels = 1;
  }
  return p;
}

}  // namespace braid
