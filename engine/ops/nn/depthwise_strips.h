// CUDA kernels of depthwise convolutions with strides of 1 or 2 whose filters are 3 x 3, 5 x 5 or 7 x 7 or,
// of sequences with their channels last, have 2 to 32 places. A thread computes a strip of rows of one column
// of an image, so a row that it reads serves all rows of the strip that it is under; neighbours in a warp are
// neighbours in memory, for NHWC and NCHW. A filter's gradient is the sum of a fixed number of parts in a
// fixed order, which follows from sizes alone. Of halves a thread takes two neighbouring channels, which are
// last, and adds in float32. REQUIRES: has_depthwise_strips(), and images of fewer than 2^31 elements.
#pragma once

#include "engine/ops/nn/convolution.h"

namespace braid::cuda {

/// Inputs: images, filter. Output: images.
PreparedKernel depthwise_forward(const Convolution& conv, DType dtype);
/// Inputs: anything, filter, gradient of the output. Output: gradient of the images.
PreparedKernel depthwise_backward_input(const Convolution& conv, DType dtype);
/// Inputs: images, anything, gradient of the output. Output: gradient of the filter.
PreparedKernel depthwise_backward_filter(const Convolution& conv, DType dtype);

}  // namespace braid::cuda
