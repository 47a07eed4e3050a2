// cuDNN's graph API: a few operations as one plan, and the library's engines that can run it. Tensors are
// float32 unless they say otherwise, sums are float32.
//
//   CudnnGraph graph(device);
//   const int x = graph.tensor({.sizes = {n, c, h, w}}), filter = ..., y = graph.inner(...), out = ...;
//   graph.convolve(ConvolutionPass::Forward, conv, x, filter, y);
//   graph.relu(y, out);
//   for (const CudnnPlan& plan : graph.plans(limits)) ...
//
// Thread rule: graphs belong to one thread; plans are run by one thread at a time, several plans by several.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/stream_ref.h"
#include "engine/ops/nn/convolution.h"

namespace braid::cuda {

class CudaDevice;

enum class ConvolutionPass { Forward, BackwardInput, BackwardFilter };

/// Sizes are N, C, H, W, of a filter K, C, R, S, in whatever order they lie; of volumes N, C, D, H, W.
struct CudnnTensor {
  std::vector<std::int64_t> sizes;
  bool channels_last = true;
  DType dtype = DType::Float32;
  std::int64_t alignment_bytes = 16;  // of its address
};

/// Which engines may be taken.
struct CudnnLimits {
  bool deterministic = true;
  bool tensor_cores = true;  // for float32: TF32 inputs
  std::size_t most_workspace_bytes = 0;
  int most_plans = 8;
};

/// One way to run a graph.
struct CudnnPlan {
  std::string engine;  // "34, tiles 5": the same of one release of the library for one graph and device
  std::size_t workspace_bytes = 0;
  /// `tensors` are device pointers by the tensors' numbers. Throws: DeviceError.
  std::function<void(std::span<void* const> tensors, void* workspace, StreamRef stream)> run;
};

class CudnnGraph {
 public:
  explicit CudnnGraph(CudaDevice& device);
  ~CudnnGraph();
  CudnnGraph(const CudnnGraph&) = delete;
  CudnnGraph& operator=(const CudnnGraph&) = delete;

  /// The number of a tensor that a run names memory for: 0, 1, ...
  int tensor(const CudnnTensor& tensor);
  /// The number of a value that stays between operations; runs give it no memory, but count it.
  int inner(const CudnnTensor& tensor);
  /// The pass writes one of the three and reads the others. Groups follow from the filter's C.
  void convolve(ConvolutionPass pass, const Convolution& conv, int images, int filter, int outputs);
  /// y = a + b; b may be repeated along axes where its size is 1.
  void add(int a, int b, int y);
  void relu(int x, int y);

  /// The engines that take the graph, best guess first; none: the library has no engine for it.
  /// Throws: DeviceError.
  std::vector<CudnnPlan> plans(const CudnnLimits& limits) const;

  /// What names the graph, the device and the library's release: what plans depend on beside limits.
  std::string key() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid::cuda
