// CUDA kernels of Conv2D and its gradients: cuDNN (common/cuda/convolution_cudnn.h). The filter is brought
// into cuDNN's order of axes and back; images whose paddings in front and behind differ (SAME with a stride)
// are padded into scratch memory first, or their gradient is cut out of one that is. Depthwise convolutions
// are in depthwise_conv2d.cu.
#include <utility>

#include "engine/ops/common/cuda/fill.cuh"
#include "engine/ops/nn/convolution_cudnn.h"

namespace braid {
namespace {

constexpr std::int64_t kMostElements = (1LL << 31) - 1;  // of what cuDNN describes

/// A filter between the graph's order [taps, in, out] and cuDNN's: [out, taps, in] (NHWC) or [out, in, taps].
struct FilterOrder {
  std::int64_t taps, in, out;
  bool nchw;

  std::int64_t elements() const { return taps * in * out; }
  /// Where element i of the graph's order is in cuDNN's.
  __device__ std::int64_t locate(std::int64_t i) const {
    const std::int64_t rest = i / out, o = i - rest * out;
    if (!nchw) return o * taps * in + rest;
    const std::int64_t tap = rest / in, channel = rest - tap * in;
    return (o * in + channel) * taps + tap;
  }
};

__global__ void to_cudnn_kernel(FilterOrder order, const float* from, float* to, std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) to[order.locate(i)] = from[i];
}
__global__ void from_cudnn_kernel(FilterOrder order, const float* from, float* to, std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) to[i] = from[order.locate(i)];
}

/// Images as [outer, h, w, inner] inside padded ones.
struct Frame {
  std::int64_t outer, h, w, inner;
  std::int64_t padded_h, padded_w, top, left;

  std::int64_t elements() const { return outer * h * w * inner; }
  std::int64_t padded_elements() const { return outer * padded_h * padded_w * inner; }
};

__global__ void pad_kernel(Frame f, const float* images, float* padded, std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    const std::int64_t pixel = i / f.inner, row = pixel / f.padded_w, image = row / f.padded_h;
    const std::int64_t y = row - image * f.padded_h - f.top, x = pixel - row * f.padded_w - f.left;
    const bool inside = y >= 0 && y < f.h && x >= 0 && x < f.w;
    padded[i] = inside ? images[((image * f.h + y) * f.w + x) * f.inner + (i - pixel * f.inner)] : 0.0F;
  }
}
__global__ void crop_kernel(Frame f, const float* padded, float* images, std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    const std::int64_t pixel = i / f.inner, row = pixel / f.w, image = row / f.h;
    const std::int64_t y = row - image * f.h + f.top, x = pixel - row * f.w + f.left;
    images[i] = padded[((image * f.padded_h + y) * f.padded_w + x) * f.inner + (i - pixel * f.inner)];
  }
}

std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

/// A convolution with what is around the library's call.
struct Pass {
  cuda::PreparedConvolution library;
  FilterOrder order;
  Frame frame;
  bool padded = false;

  Pass(const PrepareContext& c, Convolution conv, cuda::ConvolutionPass pass) {
    WindowAxis &h = conv.window.h, &w = conv.window.w;
    const bool nchw = conv.window.axes.nchw();
    order = {h.kernel * w.kernel, conv.in_c, conv.out_c, nchw};
    frame = {.outer = nchw ? conv.batch * conv.in_c : conv.batch,
             .h = conv.in_h,
             .w = conv.in_w,
             .inner = nchw ? 1 : conv.in_c,
             .padded_h = conv.in_h + h.pad_before + h.pad_after,
             .padded_w = conv.in_w + w.pad_before + w.pad_after,
             .top = h.pad_before,
             .left = w.pad_before};
    padded = h.pad_before != h.pad_after || w.pad_before != w.pad_after;
    if (padded) {
      if (frame.padded_elements() > kMostElements)
        c.fail("images of " + std::to_string(frame.padded_elements()) + " elements with their paddings");
      conv.in_h = frame.padded_h;
      conv.in_w = frame.padded_w;
      h.pad_before = h.pad_after = w.pad_before = w.pad_after = 0;
    }
    library = cuda::prepare_cudnn(c, conv, pass);
  }

  std::size_t filter_bytes() const {
    return rounded(static_cast<std::size_t>(order.elements()) * sizeof(float));
  }
  std::size_t padded_bytes() const {
    return padded ? rounded(static_cast<std::size_t>(frame.padded_elements()) * sizeof(float)) : 0;
  }
  std::size_t scratch_bytes() const { return filter_bytes() + padded_bytes() + library.workspace_bytes; }

  // The parts of the scratch memory.
  float* filter(const KernelArgs& a) const { return static_cast<float*>(a.scratch); }
  float* images(const KernelArgs& a) const {
    return reinterpret_cast<float*>(static_cast<char*>(a.scratch) + filter_bytes());
  }
  void* workspace(const KernelArgs& a) const {
    return static_cast<char*>(a.scratch) + filter_bytes() + padded_bytes();
  }

  void bring_filter(const KernelArgs& a, int input) const {
    cuda::launch(to_cudnn_kernel, cuda::blocks_for(order.elements()), cuda::kThreads, 0, a.stream, order,
                 a.in<float>(input), filter(a), order.elements());
  }
  /// The images that the library reads.
  float* bring_images(const KernelArgs& a, int input) const {
    if (!padded) return a.var<float>(input);
    cuda::launch(pad_kernel, cuda::blocks_for(frame.padded_elements()), cuda::kThreads, 0, a.stream, frame,
                 a.in<float>(input), images(a), frame.padded_elements());
    return images(a);
  }

  void forward(const KernelArgs& a) const {
    bring_filter(a, 1);
    library.run({bring_images(a, 0), filter(a), a.out<float>(0), workspace(a), a.stream});
  }
  void backward_input(const KernelArgs& a) const {
    bring_filter(a, 1);
    library.run({padded ? images(a) : a.out<float>(0), filter(a), a.var<float>(2), workspace(a), a.stream});
    if (padded)
      cuda::launch(crop_kernel, cuda::blocks_for(frame.elements()), cuda::kThreads, 0, a.stream, frame,
                   static_cast<const float*>(images(a)), a.out<float>(0), frame.elements());
  }
  void backward_filter(const KernelArgs& a) const {
    library.run({bring_images(a, 0), filter(a), a.var<float>(2), workspace(a), a.stream});
    cuda::launch(from_cudnn_kernel, cuda::blocks_for(order.elements()), cuda::kThreads, 0, a.stream, order,
                 static_cast<const float*>(filter(a)), a.out<float>(0), order.elements());
  }
};

/// `in` and `filter` are the shapes of the convolution's images and filter.
PreparedKernel prepare(const PrepareContext& c, const Shape& in, const Shape& filter,
                       cuda::ConvolutionPass kind, void (Pass::*run)(const KernelArgs&) const) {
  const Convolution conv =
      make_convolution(c.node, in, filter, [&c](const std::string& message) { c.fail(message); });
  if (conv.is_empty()) return cuda::zero_output(c);
  auto pass = std::make_shared<const Pass>(c, conv, kind);
  PreparedKernel kernel;
  kernel.scratch_bytes = pass->scratch_bytes();
  kernel.run = [pass, run](const KernelArgs& a) { ((*pass).*run)(a); };
  return kernel;
}

/// Whether images have as many channels as the filter takes.
bool has_one_group(const Node& node, std::span<const OutputInfo> inputs) {
  const std::string& op = node.op->name;
  const Shape& images = op == "Conv2DBackpropInput" ? node.outputs[0].shape : inputs[0].shape;
  const Shape& filter = op == "Conv2DBackpropFilter" ? node.outputs[0].shape : inputs[1].shape;
  const bool nchw = node.attrs.get("data_format", std::string("NHWC")) == "NCHW";
  return images[nchw ? 1 : 3] == filter[2];
}

/// Sizes that cuDNN's descriptions hold, and one group.
bool supports(const Node& node, std::span<const OutputInfo> inputs) {
  if (!has_one_group(node, inputs)) return false;
  for (const OutputInfo& input : inputs)
    if (input.shape.elements() > kMostElements) return false;
  return node.outputs[0].shape.elements() <= kMostElements;
}

}  // namespace

void register_conv2d_cuda(OpRegistry& registry) {
  registry.add_cuda(
      "Conv2D",
      [](const PrepareContext& c) {
        return prepare(c, c.inputs[0].shape, c.inputs[1].shape, cuda::ConvolutionPass::Forward,
                       &Pass::forward);
      },
      supports);
  registry.add_cuda(
      "Conv2DBackpropInput",
      [](const PrepareContext& c) {
        return prepare(c, c.outputs[0].shape, c.inputs[1].shape, cuda::ConvolutionPass::BackwardInput,
                       &Pass::backward_input);
      },
      supports);
  registry.add_cuda(
      "Conv2DBackpropFilter",
      [](const PrepareContext& c) {
        return prepare(c, c.inputs[0].shape, c.outputs[0].shape, cuda::ConvolutionPass::BackwardFilter,
                       &Pass::backward_filter);
      },
      supports);
}

}  // namespace braid
