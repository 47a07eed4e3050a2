// The windows of convolutions and pooling as ONNX nodes say them: kernel, strides, dilations, pads or
// auto_pad, for any number of spatial axes. Where sizes that are not known matter, SAME_UPPER of two and
// three axes is left to TensorFlow's ops, and ceil_mode pads as much as it may need.
// Thread rule: pure.
#pragma once

#include "engine/import/onnx/node.h"

namespace braid::onnx {

struct WindowSpec {
  Ints kernel, strides, dilations, before, after;
  /// Sizes are not known and the pads are those that TensorFlow calls SAME; `before` and `after` are zeros.
  bool is_same = false;
  int axes() const { return static_cast<int>(kernel.size()); }
  std::int64_t extent(int axis) const {
    const auto i = static_cast<std::size_t>(axis);
    return (kernel[i] - 1) * dilations[i] + 1;
  }
};

/// "padding" and "explicit_paddings" of ops on NCHW images or NCDHW volumes: VALID without pads. Of three
/// axes TensorFlow knows SAME and VALID alone; convolutions here take explicit paddings as well.
void set_padding(AttrMap& attrs, const WindowSpec& w);

/// One number an axis behind 1 for batch and channels, as TensorFlow's attributes of NCHW and NCDHW have
/// them.
Ints behind_channels(const Ints& spatial);

/// The last two spatial axes of `w`, or its one behind one of size 1.
WindowSpec planar(const WindowSpec& w);

/// The pads are those that TensorFlow calls SAME.
bool is_same_padding(const WindowSpec& w, Val x);

/// Strides, dilations and pads from the attributes, without auto_pad, for an input [N, C, spatial...].
/// Throws: InvalidArgument for numbers that are not as many as the kernel's axes, or that no window has.
WindowSpec read_plain_window(OnnxNode& n, Val x, Ints kernel);

/// Of a node whose input 0 is [N, C, spatial...].
WindowSpec read_window(OnnxNode& n, Val x, Ints kernel);

/// `extra` in addition to the pads behind each axis, so that ceil_mode's last windows fit.
Ints ceil_extra(const WindowSpec& w, Val x, bool ceil_mode);

}  // namespace braid::onnx
