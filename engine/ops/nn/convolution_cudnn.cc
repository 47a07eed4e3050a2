#include "engine/ops/nn/convolution_cudnn.h"

#include <cudnn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "engine/device/cuda/cuda_device.h"

namespace braid::cuda {
namespace {

constexpr std::size_t kMostWorkspace = 256U << 20;
constexpr int kCandidates = 16;

void check(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw_error(ErrorCode::DeviceError,
                fmt::format("cuDNN: {} failed: {}", what, cudnnGetErrorString(status)));
}

/// cuDNN's state on a device: kernels share one and take turns to call it.
struct Library {
  cudnnHandle_t handle = nullptr;
  std::mutex mu;  // a call goes to the handle's stream

  explicit Library(int device) {
    const DeviceGuard guard(device);
    check(cudnnCreate(&handle), "cudnnCreate");
  }
  Library(const Library&) = delete;
  ~Library() { cudnnDestroy(handle); }

  /// That of a device; it goes when the last kernel does.
  static std::shared_ptr<Library> of(int device) {
    static std::mutex mu;
    static std::map<int, std::weak_ptr<Library>> libraries;
    std::lock_guard lock(mu);
    auto& known = libraries[device];
    if (auto library = known.lock()) return library;
    auto made = std::make_shared<Library>(device);
    known = made;
    return made;
  }
};

struct Descriptors {
  std::shared_ptr<Library> library;
  cudnnTensorDescriptor_t images = nullptr, outputs = nullptr;
  cudnnFilterDescriptor_t filter = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;

  explicit Descriptors(std::shared_ptr<Library> shared) : library(std::move(shared)) {}
  Descriptors(std::shared_ptr<Library> shared, const Convolution& conv, bool tf32)
      : Descriptors(std::move(shared)) {  // so that one that fails to come about gives back what it has
    const cudnnTensorFormat_t format = conv.window.axes.nchw() ? CUDNN_TENSOR_NCHW : CUDNN_TENSOR_NHWC;
    const auto size = [](std::int64_t n) { return static_cast<int>(n); };
    const WindowAxis &h = conv.window.h, &w = conv.window.w;
    check(cudnnCreateTensorDescriptor(&images), "a tensor");
    check(cudnnCreateTensorDescriptor(&outputs), "a tensor");
    check(cudnnCreateFilterDescriptor(&filter), "a filter");
    check(cudnnCreateConvolutionDescriptor(&convolution), "a convolution");
    check(cudnnSetTensor4dDescriptor(images, format, CUDNN_DATA_FLOAT, size(conv.batch), size(conv.in_c),
                                     size(conv.in_h), size(conv.in_w)),
          "images");
    check(cudnnSetTensor4dDescriptor(outputs, format, CUDNN_DATA_FLOAT, size(conv.batch), size(conv.out_c),
                                     size(conv.out_h), size(conv.out_w)),
          "outputs");
    check(cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, format, size(conv.out_c),
                                     size(conv.in_c / conv.groups), size(h.kernel), size(w.kernel)),
          "a filter");
    check(cudnnSetConvolution2dDescriptor(convolution, size(h.pad_before), size(w.pad_before), size(h.stride),
                                          size(w.stride), size(h.dilation), size(w.dilation),
                                          CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
          "a convolution");
    check(cudnnSetConvolutionGroupCount(convolution, size(conv.groups)), "groups");
    check(cudnnSetConvolutionMathType(convolution, tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH),
          "a type of math");
  }
  Descriptors(const Descriptors&) = delete;
  ~Descriptors() {
    if (images) cudnnDestroyTensorDescriptor(images);
    if (outputs) cudnnDestroyTensorDescriptor(outputs);
    if (filter) cudnnDestroyFilterDescriptor(filter);
    if (convolution) cudnnDestroyConvolutionDescriptor(convolution);
  }
};

/// The first of the heuristics' candidates that may be used, if any. `candidates` asks for them, `workspace`
/// says what one needs.
template <class Result, class Algorithm, class Candidates, class Workspace>
std::optional<Algorithm> choose(bool deterministic, std::size_t most_workspace, const Candidates& candidates,
                                const Workspace& workspace, std::size_t& bytes) {
  std::array<Result, kCandidates> results;
  int count = 0;
  const cudnnStatus_t asked = candidates(kCandidates, &count, results.data());
  if (asked == CUDNN_STATUS_NOT_SUPPORTED) return std::nullopt;
  check(asked, "the choice of an algorithm");
  for (int i = 0; i < count; ++i) {
    const Result& r = results[static_cast<std::size_t>(i)];
    if (r.status != CUDNN_STATUS_SUCCESS) continue;
    if (deterministic && r.determinism != CUDNN_DETERMINISTIC) continue;
    if (workspace(r.algo, &bytes) == CUDNN_STATUS_SUCCESS && bytes <= most_workspace) return r.algo;
  }
  return std::nullopt;
}

const float kOne = 1, kZero = 0;

/// Nothing when cuDNN has no algorithm for this that takes at most `most_workspace` bytes.
std::optional<PreparedConvolution> prepare_at_once(const PrepareContext& c, const Convolution& conv,
                                                   ConvolutionPass pass, std::size_t most_workspace) {
  CudaDevice& device = device_of(c.accelerator);
  auto d = std::make_shared<Descriptors>(Library::of(device.ordinal()), conv, device.options().tf32);
  const cudnnHandle_t handle = d->library->handle;
  std::lock_guard lock(d->library->mu);
  PreparedConvolution prepared;
  std::size_t& bytes = prepared.workspace_bytes;
  const auto with_stream = [d](const ConvolutionArgs& a, const auto& call) {
    std::lock_guard turn(d->library->mu);
    check(cudnnSetStream(d->library->handle, native(a.stream)), "cudnnSetStream");
    check(call(), "a convolution");
  };
  switch (pass) {
    case ConvolutionPass::Forward: {
      const auto algorithm = choose<cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionFwdAlgo_t>(
          c.deterministic, most_workspace,
          [&](int most, int* count, cudnnConvolutionFwdAlgoPerf_t* results) {
            return cudnnGetConvolutionForwardAlgorithm_v7(handle, d->images, d->filter, d->convolution,
                                                          d->outputs, most, count, results);
          },
          [&](cudnnConvolutionFwdAlgo_t algo, std::size_t* needed) {
            return cudnnGetConvolutionForwardWorkspaceSize(handle, d->images, d->filter, d->convolution,
                                                           d->outputs, algo, needed);
          },
          bytes);
      if (!algorithm) return std::nullopt;
      prepared.run = [=, size = bytes](const ConvolutionArgs& a) {
        with_stream(a, [&] {
          return cudnnConvolutionForward(handle, &kOne, d->images, a.images, d->filter, a.filter,
                                         d->convolution, *algorithm, a.workspace, size, &kZero, d->outputs,
                                         a.outputs);
        });
      };
      break;
    }
    case ConvolutionPass::BackwardInput: {
      const auto algorithm = choose<cudnnConvolutionBwdDataAlgoPerf_t, cudnnConvolutionBwdDataAlgo_t>(
          c.deterministic, most_workspace,
          [&](int most, int* count, cudnnConvolutionBwdDataAlgoPerf_t* results) {
            return cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, d->filter, d->outputs, d->convolution,
                                                               d->images, most, count, results);
          },
          [&](cudnnConvolutionBwdDataAlgo_t algo, std::size_t* needed) {
            return cudnnGetConvolutionBackwardDataWorkspaceSize(handle, d->filter, d->outputs, d->convolution,
                                                                d->images, algo, needed);
          },
          bytes);
      if (!algorithm) return std::nullopt;
      prepared.run = [=, size = bytes](const ConvolutionArgs& a) {
        with_stream(a, [&] {
          return cudnnConvolutionBackwardData(handle, &kOne, d->filter, a.filter, d->outputs, a.outputs,
                                              d->convolution, *algorithm, a.workspace, size, &kZero,
                                              d->images, a.images);
        });
      };
      break;
    }
    case ConvolutionPass::BackwardFilter: {
      const auto algorithm = choose<cudnnConvolutionBwdFilterAlgoPerf_t, cudnnConvolutionBwdFilterAlgo_t>(
          c.deterministic, most_workspace,
          [&](int most, int* count, cudnnConvolutionBwdFilterAlgoPerf_t* results) {
            return cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                handle, d->images, d->outputs, d->convolution, d->filter, most, count, results);
          },
          [&](cudnnConvolutionBwdFilterAlgo_t algo, std::size_t* needed) {
            return cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, d->images, d->outputs,
                                                                  d->convolution, d->filter, algo, needed);
          },
          bytes);
      if (!algorithm) return std::nullopt;
      prepared.run = [=, size = bytes](const ConvolutionArgs& a) {
        with_stream(a, [&] {
          return cudnnConvolutionBackwardFilter(handle, &kOne, d->images, a.images, d->outputs, a.outputs,
                                                d->convolution, *algorithm, a.workspace, size, &kZero,
                                                d->filter, a.filter);
        });
      };
      break;
    }
  }
  return prepared;
}

}  // namespace

std::vector<ConvolutionPart> prepare_cudnn(const PrepareContext& c, const Convolution& conv,
                                           ConvolutionPass pass) {
  std::map<std::int64_t, std::shared_ptr<const PreparedConvolution>> known;  // by images
  std::size_t most_workspace = kMostWorkspace;
  const auto works = [&](std::int64_t images) {
    if (known.contains(images)) return true;
    Convolution part = conv;
    part.batch = images;
    auto prepared = prepare_at_once(c, part, pass, most_workspace);
    if (prepared) known[images] = std::make_shared<PreparedConvolution>(std::move(*prepared));
    return prepared.has_value();
  };
  const std::int64_t an_image =
      std::max(conv.in_h * conv.in_w * conv.in_c, conv.out_h * conv.out_w * conv.out_c);
  std::int64_t images = images_a_part(conv.batch, kMostElements / an_image, works);
  if (images == 0 && an_image <= kMostElements) {  // large images: one at a time, whatever it takes
    most_workspace = std::numeric_limits<std::size_t>::max();
    images = works(1) ? 1 : 0;
  }
  if (images == 0)
    c.fail(
        fmt::format("cuDNN has no {}algorithm for an image of {} x {} with {} channels under a filter of "
                    "{} x {}",
                    c.deterministic ? "deterministic " : "", conv.in_h, conv.in_w, conv.in_c,
                    conv.window.h.kernel, conv.window.w.kernel));
  std::vector<ConvolutionPart> parts;
  for (const BatchPart& part : batch_parts(conv.batch, images))
    parts.push_back({part, known.at(part.images)});
  if (parts.size() > 1)
    log_debug("[{}] node '{}': a batch of {} images in parts of {}", c.node.op->name, c.node.name, conv.batch,
              images);
  return parts;
}

}  // namespace braid::cuda
