// What a layer does behind its convolution, by a kernel of its own on a device: y = relu(y + bias +
// residual). Thread rule: pure function. Stream: the one of the arguments.
#pragma once

#include "engine/ops/nn/convolution_cudnn.h"

namespace braid::cuda {

/// In place, over `images` images of outputs, which are of `dtype` as residuals are; biases are float32.
void finish_layer(const Convolution& conv, DType dtype, bool relu, const ConvolutionArgs& a,
                  std::int64_t images);

}  // namespace braid::cuda
