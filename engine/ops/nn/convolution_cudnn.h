// Convolutions by cuDNN's graph API (cudnn_graph.h): which engine, its workspace, and the calls. Images are
// NHWC or NCHW as the window says, filters [out, in / groups, h, w] in the same order of axes (out, h, w, in
// for NHWC). Float32 with TF32 inputs where the device's options allow it, or all three of one type of
// halves, whose products are added in float32. Few channels of halves may be padded to eight
// (channel_padding.h), which is another way.
//
// The engine is the fastest of those that the library suggests, by time on the device when the kernel is
// prepared. What was chosen for a convolution, a device and a release of the library is kept
// (engine/device/kept_choices.h), so that later runs have the same bits. Engines that add in an order of
// their own are left out unless the program need not be deterministic. A batch for which there is no engine,
// or none without gigabytes of workspace, is taken in parts. Thread rule: prepare from one thread; runs of
// several kernels may be on different threads.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/ops/nn/batch_parts.h"
#include "engine/ops/nn/convolution.h"
#include "engine/ops/nn/cudnn_graph.h"

namespace braid::cuda {

/// Device pointers. The pass writes one of the first three and reads the others.
struct ConvolutionArgs {
  void* images;   // or their gradient
  void* filter;   // or its gradient
  void* outputs;  // or their gradient
  void* workspace;
  StreamRef stream;
  const float* bias = nullptr;     // of a layer
  const void* residual = nullptr;  // of a layer that has one, like outputs
};

struct PreparedConvolution {
  std::size_t workspace_bytes = 0;
  std::function<void(const ConvolutionArgs&)> run;
};

/// What a forward pass does besides: outputs = relu(convolution + bias + residual).
struct ConvolutionLayer {
  bool has_bias = false, has_residual = false, relu = false;
  /// The same by a kernel of its own, over what the convolution has put into outputs: another way, which the
  /// library's are measured against.
  std::function<void(const ConvolutionArgs&, std::int64_t images)> after = {};

  bool is_plain() const { return !has_bias && !has_residual && !relu; }
};

/// A kernel of our own for a convolution, if there is one: another way.
using OwnConvolution = std::function<std::optional<PreparedConvolution>(const Convolution& conv)>;

/// The convolution of a part of the batch.
struct ConvolutionPart {
  BatchPart batch;
  std::shared_ptr<const PreparedConvolution> library;
};

inline constexpr std::int64_t kMostElements = (1LL << 31) - 1;  // of a tensor that cuDNN describes

/// Of images, filter and outputs of `dtype`. As few parts as cuDNN has engines for, with little workspace;
/// most often one. The parts of a filter's gradient are to be added. None where cuDNN has no engine for a
/// single image: it takes paddings that differ in front and behind of some convolutions only. REQUIRES:
/// nothing is empty.
std::vector<ConvolutionPart> prepare_cudnn(const PrepareContext& c, const Convolution& conv,
                                           ConvolutionPass pass, DType dtype,
                                           const ConvolutionLayer& layer = {},
                                           const OwnConvolution& own = {});
/// Says that cuDNN has no engine. Throws: InvalidArgument.
[[noreturn]] void refuse_convolution(const PrepareContext& c, const Convolution& conv);

}  // namespace braid::cuda
