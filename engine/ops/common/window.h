// Sliding windows over images, as convolutions and pooling have them: attributes strides, dilations, padding
// (SAME, VALID, EXPLICIT with explicit_paddings) and data_format (NHWC, NCHW), and what follows from them.
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

/// Which axis of a rank-4 image tensor is what.
struct ImageAxes {
  int n = 0, h = 1, w = 2, c = 3;
  bool nchw() const { return c == 1; }
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
};

using Fail = std::function<void(const std::string&)>;  // throws with the message

/// Reads data_format, strides, dilations, padding and explicit_paddings; kernel sizes are left at 1. Calls
/// `fail` when they do not make a window over the two image axes.
Window read_window(const AttrMap& attrs, const Fail& fail);

/// Output size along one axis for an input of `in` (unknown stays unknown), and sets SAME's paddings. Calls
/// `fail` when the window does not fit into the padded input.
std::int64_t resolve_axis(WindowAxis& axis, Padding padding, std::int64_t in, const Fail& fail);

/// Rank-4 shape in the order of `axes`.
Shape image_shape(const ImageAxes& axes, std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c);

}  // namespace braid
