// Convolutions of images with few channels, such as those that a model reads, on a device: a filter of 3 x 3
// over one to four channels or of 5 x 5 over one, NHWC, float32 or halves. The library's kernels for matrix
// units take multiples of four channels, of halves eight; here a thread keeps the sums of four outputs of a
// pixel, in float32, so that memory is the limit. Another way beside the library's, taken where it is faster.
// Thread rule: as convolution_cudnn.h.
#pragma once

#include <optional>

#include "engine/ops/nn/convolution_cudnn.h"

namespace braid::cuda {

/// Nothing for other convolutions (has_few_channels) and for gradients of images. Filters are in the
/// library's order.
std::optional<PreparedConvolution> prepare_few_channels(const Convolution& conv, ConvolutionPass pass,
                                                        DType dtype);

}  // namespace braid::cuda
