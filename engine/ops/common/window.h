// Sliding windows over images and volumes, as convolutions and pooling have them: attributes strides,
// dilations, padding (SAME, VALID, EXPLICIT with explicit_paddings) and data_format (NHWC, NCHW; of volumes
// NDHWC, NCDHW), and what follows from them.
// Formulas (TensorFlow): with e = (kernel - 1) * dilation + 1,
//   VALID: out = ceil((in - e + 1) / stride);  EXPLICIT: the same with the paddings added to in;
//   SAME: out = ceil(in / stride), paddings max((out - 1) * stride + e - in, 0), the smaller half in front.
// Thread rule: pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine/ir/attr.h"
#include "engine/ir/shape.h"

namespace braid {

/// Which axis of a tensor of images (rank 4), or of volumes (rank 5), is what.
struct ImageAxes {
  int n = 0, h = 1, w = 2, c = 3;
  int d = -1;  // the depth of volumes
  /// Channels come first.
  bool nchw() const { return c == 1; }
  bool volumes() const { return d >= 0; }
  int rank() const { return volumes() ? 5 : 4; }
};

/// One spatial direction of a window.
struct WindowAxis {
  std::int64_t kernel = 1, stride = 1, dilation = 1;
  std::int64_t pad_before = 0, pad_after = 0;  // SAME: valid after `output`
  std::int64_t extent() const { return (kernel - 1) * dilation + 1; }
};

enum class Padding { Same, Valid, Explicit };

struct Window {
  ImageAxes axes;
  Padding padding = Padding::Valid;
  WindowAxis h, w;
  WindowAxis d;  // of images one place
};

using Fail = std::function<void(const std::string&)>;  // throws with the message

/// Reads data_format, strides, dilations, padding and explicit_paddings; kernel sizes are left at 1. Calls
/// `fail` when they do not make a window over the two axes of images, or the three of volumes.
Window read_window(const AttrMap& attrs, const Fail& fail, bool volumes = false);

/// Output size along one axis for an input of `in` (unknown stays unknown), and sets SAME's paddings. Calls
/// `fail` when the window does not fit into the padded input.
std::int64_t resolve_axis(WindowAxis& axis, Padding padding, std::int64_t in, const Fail& fail);

/// The shape of images in the order of `axes`, or of volumes of depth `d`.
Shape image_shape(const ImageAxes& axes, std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c,
                  std::int64_t d = 1);

}  // namespace braid
