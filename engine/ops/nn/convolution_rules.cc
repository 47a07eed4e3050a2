// From a node's attributes and shapes to a Convolution, and what follows from these.
#include <fmt/format.h>

#include "base/error.h"
#include "engine/ops/nn/convolution.h"

namespace braid {

bool has_outputs_first(const Node& node) {
  return node.attrs.get<std::string>(kFilterFormat, "HWIO") == "OHWI";
}

Shape outputs_last(const Node& node, const Shape& filter) {
  if (!has_outputs_first(node) || !filter.has_rank() || filter.rank() == 0) return filter;
  std::vector<std::int64_t> dims(filter.dims().begin() + 1, filter.dims().end());
  dims.push_back(filter[0]);
  return Shape(std::move(dims));
}

Convolution make_convolution(const Node& node, const Shape& in, const Shape& node_filter, const Fail& fail) {
  Convolution conv;
  const Shape filter = outputs_last(node, node_filter);
  conv.outputs_first = has_outputs_first(node);
  const bool is_depthwise = node.op->name.starts_with("Depthwise");
  const bool volumes = node.op->name.starts_with("Conv3D");
  conv.window = read_window(node.attrs, fail, volumes);
  const ImageAxes& axes = conv.window.axes;
  if (conv.outputs_first && (axes.nchw() || is_depthwise))
    fail("filter_format OHWI is of channels that are last, and of no depthwise convolution");
  conv.batch = in[axes.n];
  conv.in_h = in[axes.h];
  conv.in_w = in[axes.w];
  conv.in_c = in[axes.c];
  const int channels = axes.rank() - 2;  // the filter's axis
  conv.window.h.kernel = filter[channels - 2];
  conv.window.w.kernel = filter[channels - 1];
  if (volumes) {
    conv.in_d = in[axes.d];
    conv.window.d.kernel = filter[0];
    conv.out_d = resolve_axis(conv.window.d, conv.window.padding, conv.in_d, fail);
  }
  if (conv.in_c == Shape::kUnknown) conv.in_c = filter[channels];
  conv.out_c = filter[channels + 1];
  if (filter[channels] != Shape::kUnknown && conv.in_c != filter[channels]) {
    const bool fits = !is_depthwise && filter[channels] > 0 && conv.in_c % filter[channels] == 0;
    if (fits) conv.groups = conv.in_c / filter[channels];
    if (!fits || conv.groups == 0 || (conv.out_c != Shape::kUnknown && conv.out_c % conv.groups != 0))
      fail(fmt::format("images of shape {} have {} channels, filter {} takes {}", in.to_string(), conv.in_c,
                       filter.to_string(), filter[channels]));
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

bool has_few_channels(const Convolution& conv) {
  constexpr std::int64_t kMostPacks = 64;  // of four outputs
  const std::int64_t packs = conv.out_c / 4, side = conv.window.h.kernel;
  const bool is_plain = !conv.window.axes.nchw() && !conv.window.axes.volumes() && conv.groups == 1;
  const bool has_packs =
      conv.out_c % 4 == 0 && packs > 0 && packs <= kMostPacks && (packs & (packs - 1)) == 0;
  const bool has_kernel = (side == 3 && conv.in_c >= 1 && conv.in_c <= 4) || (side == 5 && conv.in_c == 1);
  return is_plain && has_packs && has_kernel && conv.window.w.kernel == side;
}

bool has_channels_for_eight(const Convolution& conv) {
  constexpr std::int64_t kVector = 8, kFew = 4, kMany = 16;
  const auto is_many = [](std::int64_t channels) { return channels >= kMany && channels % kVector == 0; };
  const auto is_few = [](std::int64_t channels) { return channels >= 1 && channels <= kFew; };
  const bool fits = (is_few(conv.in_c) && is_many(conv.out_c)) || (is_many(conv.in_c) && is_few(conv.out_c));
  return fits && conv.groups == 1 && !conv.window.axes.nchw();
}

bool has_depthwise_strips(const Convolution& conv, DType dtype) {
  const WindowAxis &h = conv.window.h, &w = conv.window.w;
  constexpr std::int64_t kMostBlocks = 65535;  // across the second axis of a grid
  constexpr std::int64_t kLongestFilter = 32;  // of a sequence
  const bool fits = dtype == DType::Float32 || (conv.in_c % 2 == 0 && !conv.window.axes.nchw());
  if (!fits || conv.in_c != conv.out_c || conv.in_c > kMostBlocks || w.dilation != 1 || w.stride < 1 ||
      w.stride > 2)
    return false;
  if (h.kernel == 1 && conv.in_h == 1 && conv.out_h == 1)
    return h.pad_before == 0 && !conv.window.axes.nchw() && w.kernel >= 2 && w.kernel <= kLongestFilter;
  return h.kernel == w.kernel && h.stride == w.stride && h.dilation == 1 &&
         (h.kernel == 3 || h.kernel == 5 || h.kernel == 7);
}

bool halves_pay(const Node& node, std::span<const OutputInfo> inputs) {
  constexpr std::int64_t kVector = 8;
  const bool makes_filter = node.op->name.find("BackpropFilter") != std::string::npos;
  const bool makes_images = node.op->name.find("BackpropInput") != std::string::npos;
  const Shape& own_filter = makes_filter ? node.outputs[0].shape : inputs[1].shape;
  const Shape filter = outputs_last(node, own_filter);
  const int last = filter.rank() - 1;
  const bool by_channel = node.op->name.starts_with("Depthwise");
  if (!by_channel && filter[last - 1] % kVector == 0 && filter[last] % kVector == 0) return true;
  const Fail fail = [&node](const std::string& message) {
    throw InvalidArgument(place_of(node) + ": " + message);
  };
  const Shape& images = makes_images ? node.outputs[0].shape : inputs[0].shape;
  const Convolution conv = make_convolution(node, images, own_filter, fail);
  return by_channel ? has_depthwise_strips(conv, DType::BFloat16) : has_channels_for_eight(conv);
}

}  // namespace braid
