// From a node's attributes and shapes to a Convolution.
#include <fmt/format.h>

#include "engine/ops/nn/convolution.h"

namespace braid {

Convolution make_convolution(const Node& node, const Shape& in, const Shape& filter, const Fail& fail) {
  Convolution conv;
  const bool is_depthwise = node.op->name.starts_with("Depthwise");
  conv.window = read_window(node.attrs, fail);
  const ImageAxes& axes = conv.window.axes;
  conv.batch = in[axes.n];
  conv.in_h = in[axes.h];
  conv.in_w = in[axes.w];
  conv.in_c = in[axes.c];
  conv.window.h.kernel = filter[0];
  conv.window.w.kernel = filter[1];
  if (conv.in_c == Shape::kUnknown) conv.in_c = filter[2];
  conv.out_c = filter[3];
  if (filter[2] != Shape::kUnknown && conv.in_c != filter[2]) {
    const bool fits = !is_depthwise && filter[2] > 0 && conv.in_c % filter[2] == 0;
    if (fits) conv.groups = conv.in_c / filter[2];
    if (!fits || conv.groups == 0 || (conv.out_c != Shape::kUnknown && conv.out_c % conv.groups != 0))
      fail(fmt::format("images of shape {} have {} channels, filter {} takes {}", in.to_string(), conv.in_c,
                       filter.to_string(), filter[2]));
  }
  if (is_depthwise) {
    conv.groups = conv.in_c;
    conv.out_c = conv.in_c == Shape::kUnknown || filter[3] == Shape::kUnknown ? Shape::kUnknown
                                                                              : conv.in_c * filter[3];
  }
  conv.out_h = resolve_axis(conv.window.h, conv.window.padding, conv.in_h, fail);
  conv.out_w = resolve_axis(conv.window.w, conv.window.padding, conv.in_w, fail);
  return conv;
}

}  // namespace braid
