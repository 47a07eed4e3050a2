// Few channels of halves as eight: cuDNN's kernels for matrix units read halves in vectors of eight channels,
// so images of three have none of them, or slow ones. Images, outputs and filters are copied to tensors with
// zeros behind their channels and back; the other side of such a convolution is many times as large.
// Thread rule: pure functions; work goes to the stream.
#pragma once

#include <optional>

#include "engine/ops/nn/convolution_cudnn.h"

namespace braid::cuda {

/// The convolution with its few channels, of images or of outputs, as eight; nothing where it has none, or
/// not last, or in groups.
std::optional<Convolution> with_eight_channels(const Convolution& conv);

/// `wide` as `conv`: copies what it reads, runs it, and copies back. `wide`'s tensors and then its own
/// workspace are the workspace's beginning.
PreparedConvolution padded_channels(const Convolution& conv, const Convolution& wide_conv,
                                    ConvolutionPass pass, PreparedConvolution wide);

}  // namespace braid::cuda
