// Convolutions by cuDNN, float32: which algorithm, its workspace, and the calls. Images are NHWC or NCHW as
// the window says, filters [out, in / groups, h, w] in the same order of axes (out, h, w, in for NHWC);
// paddings in front and behind are equal. The algorithm is the first deterministic one of cuDNN's heuristics,
// so a program's bits do not change from run to run; TF32 inputs where the device's options allow it. Thread
// rule: prepare from one thread; runs of several kernels may be on different threads.
#pragma once

#include <functional>

#include "engine/ops/nn/convolution.h"

namespace braid::cuda {

enum class ConvolutionPass { Forward, BackwardInput, BackwardFilter };

/// Device pointers. The pass writes one of them and reads the others.
struct ConvolutionArgs {
  float* images;   // or their gradient
  float* filter;   // or its gradient
  float* outputs;  // or their gradient
  void* workspace;
  StreamRef stream;
};

struct PreparedConvolution {
  std::size_t workspace_bytes = 0;
  std::function<void(const ConvolutionArgs&)> run;
};

/// REQUIRES: nothing is empty. Throws: InvalidArgument when cuDNN has no algorithm for this.
PreparedConvolution prepare_cudnn(const PrepareContext& c, const Convolution& conv, ConvolutionPass pass);

}  // namespace braid::cuda
