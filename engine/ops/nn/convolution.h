// Convolutions of images and volumes, plain and depthwise, forward and backward: the kernels of Conv2D,
// Conv3D and their kin, by oneDNN, float32. The batch is cut into blocks by shapes alone. Filters are
// reordered into the layout that the primitive wants inside run, into scratch; images are used where they are
// (for NHWC that is also the fastest layout). A filter's gradient is the sum of the blocks' parts in the
// order of the blocks.
#pragma once

#include <cstdint>

#include "engine/ir/op.h"
#include "engine/ops/common/window.h"

namespace braid {

/// Filters are [kernel h, kernel w, in channels / groups, out channels], the groups' channels one after the
/// other; depthwise, [kernel h, kernel w, groups, out channels / groups], the same elements in the same
/// order. Those of volumes have the kernel's depth in front. An image is a volume of depth 1.
/// `outputs_first`: filters are [out channels, kernel h, kernel w, in channels / groups].
struct Convolution {
  std::int64_t batch = 0, groups = 1;
  std::int64_t in_h = 0, in_w = 0, in_c = 0;
  std::int64_t out_h = 0, out_w = 0, out_c = 0;
  std::int64_t in_d = 1, out_d = 1;
  bool outputs_first = false;
  Window window;

  // REQUIRES: known sizes.
  bool is_empty() const { return batch * in_image() * out_image() == 0; }
  std::int64_t in_image() const { return in_d * in_h * in_w * in_c; }
  std::int64_t out_places() const { return out_d * out_h * out_w; }
  std::int64_t out_image() const { return out_places() * out_c; }
  std::int64_t taps() const { return window.d.kernel * window.h.kernel * window.w.kernel; }
  double flops_an_image() const { return 2.0 * static_cast<double>(out_image()) * products_an_output(); }
  double filter_bytes() const { return sizeof(float) * static_cast<double>(out_c) * products_an_output(); }
  double products_an_output() const { return static_cast<double>(taps() * in_c / groups); }
};

/// The attribute of a convolution whose filter has its outputs first, as cuDNN reads it: "OHWI", of volumes
/// as well. Its images have their channels last, and it is not depthwise.
inline constexpr const char* kFilterFormat = "filter_format";
bool has_outputs_first(const Node& node);
/// The shape of a filter with its outputs last, of what the node reads or makes.
Shape outputs_last(const Node& node, const Shape& filter);

/// The convolution of a node of the Conv2D, DepthwiseConv2dNative or Conv3D family that maps images `in`
/// under `filter`; sizes may be unknown. Calls `fail` when the attributes and shapes make none.
Convolution make_convolution(const Node& node, const Shape& in, const Shape& filter, const Fail& fail);

/// Whether a device has kernels of its own for so few channels under this filter (few_channels.h).
/// REQUIRES: known sizes.
bool has_few_channels(const Convolution& conv);

/// Whether a device has its images or its outputs, of at most four channels, as eight (channel_padding.h):
/// the other side has many, a multiple of eight, and channels are last. REQUIRES: known sizes.
bool has_channels_for_eight(const Convolution& conv);

/// Whether a device takes this depthwise convolution in strips of rows (depthwise_strips.h): one output
/// channel an input channel, no dilation, a small square filter; of halves two channels at a time, which are
/// last. REQUIRES: known sizes.
bool has_depthwise_strips(const Convolution& conv, DType dtype);

/// Whether a device is faster with halves: cuDNN reads them in vectors of eight channels, and few channels
/// can be eight; by channel those that strips take.
bool halves_pay(const Node& node, std::span<const OutputInfo> inputs);

/// Inputs: images, filter. Output: images.
PreparedKernel prepare_convolution(const PrepareContext& c, const Convolution& conv);
/// Inputs: (sizes), filter, gradient of the output. Output: gradient of the input.
PreparedKernel prepare_convolution_backward_input(const PrepareContext& c, const Convolution& conv);
/// Inputs: images, (sizes), gradient of the output. Output: gradient of the filter.
PreparedKernel prepare_convolution_backward_filter(const PrepareContext& c, const Convolution& conv);

}  // namespace braid
