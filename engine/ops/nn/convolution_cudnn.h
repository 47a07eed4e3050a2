// Convolutions by cuDNN, float32: which algorithm, its workspace, and the calls. Images are NHWC or NCHW as
// the window says, filters [out, in / groups, h, w] in the same order of axes (out, h, w, in for NHWC);
// paddings in front and behind are equal. The algorithm is the first deterministic one of cuDNN's heuristics,
// so a program's bits do not change from run to run; TF32 inputs where the device's options allow it. cuDNN
// has none for some large batches, or none without gigabytes of workspace: those are taken in parts. Thread
// rule: prepare from one thread; runs of several kernels may be on different threads.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "engine/ops/nn/batch_parts.h"
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

/// The convolution of a part of the batch.
struct ConvolutionPart {
  BatchPart batch;
  std::shared_ptr<const PreparedConvolution> library;
};

inline constexpr std::int64_t kMostElements = (1LL << 31) - 1;  // of a tensor that cuDNN describes

/// As few parts as cuDNN has algorithms for, with little workspace; most often one. The parts of a filter's
/// gradient are to be added. REQUIRES: nothing is empty. Throws: InvalidArgument when cuDNN has none for a
/// single image.
std::vector<ConvolutionPart> prepare_cudnn(const PrepareContext& c, const Convolution& conv,
                                           ConvolutionPass pass);

}  // namespace braid::cuda
