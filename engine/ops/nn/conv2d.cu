// CUDA kernels of Conv2D and its gradients: cuDNN (convolution_cudnn.h). The filter is brought
// into cuDNN's order of axes and back; images whose paddings in front and behind differ (SAME with a stride)
// are padded into scratch memory first, or their gradient is cut out of one that is. A batch for which cuDNN
// has no algorithm is taken in parts, each after the other on the stream. Depthwise convolutions are in
// depthwise_conv2d.cu.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/ops/common/cuda/fill.cuh"
#include "engine/ops/nn/convolution_cudnn.h"

namespace braid {
namespace {

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

__global__ void add_from_cudnn_kernel(FilterOrder order, const float* from, float* to, std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) to[i] += from[order.locate(i)];
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

/// A convolution with what is around the library's calls, one for each part of the batch.
struct Pass {
  using Part = cuda::ConvolutionPart;
  std::vector<Part> parts;
  FilterOrder order;
  Frame frame;  // of the first part; the last may have fewer images
  bool padded = false;
  std::int64_t in_step, out_step;  // elements of an image, of the graph's tensors
  std::int64_t outer_step;         // of the frame's outer, for an image
  std::size_t workspace_bytes = 0;

  Pass(const PrepareContext& c, Convolution conv, cuda::ConvolutionPass pass) {
    WindowAxis &h = conv.window.h, &w = conv.window.w;
    const bool nchw = conv.window.axes.nchw();
    order = {h.kernel * w.kernel, conv.in_c, conv.out_c, nchw};
    in_step = conv.in_h * conv.in_w * conv.in_c;
    out_step = conv.out_h * conv.out_w * conv.out_c;
    outer_step = nchw ? conv.in_c : 1;
    frame = {.outer = 0,
             .h = conv.in_h,
             .w = conv.in_w,
             .inner = nchw ? 1 : conv.in_c,
             .padded_h = conv.in_h + h.pad_before + h.pad_after,
             .padded_w = conv.in_w + w.pad_before + w.pad_after,
             .top = h.pad_before,
             .left = w.pad_before};
    padded = h.pad_before != h.pad_after || w.pad_before != w.pad_after;
    if (padded) {
      conv.in_h = frame.padded_h;
      conv.in_w = frame.padded_w;
      h.pad_before = h.pad_after = w.pad_before = w.pad_after = 0;
    }
    parts = cuda::prepare_cudnn(c, conv, pass);
    for (const Part& part : parts) workspace_bytes = std::max(workspace_bytes, part.library->workspace_bytes);
    frame.outer = parts.front().batch.images * outer_step;
  }

  std::size_t filter_bytes() const {
    return rounded(static_cast<std::size_t>(order.elements()) * sizeof(float));
  }
  std::size_t padded_bytes() const {
    return padded ? rounded(static_cast<std::size_t>(frame.padded_elements()) * sizeof(float)) : 0;
  }
  std::size_t scratch_bytes() const { return filter_bytes() + padded_bytes() + workspace_bytes; }

  // The parts of the scratch memory.
  float* filter(const KernelArgs& a) const { return static_cast<float*>(a.scratch); }
  float* images(const KernelArgs& a) const {
    return reinterpret_cast<float*>(static_cast<char*>(a.scratch) + filter_bytes());
  }
  void* workspace(const KernelArgs& a) const {
    return static_cast<char*>(a.scratch) + filter_bytes() + padded_bytes();
  }

  Frame frame_of(const Part& part) const {
    Frame its = frame;
    its.outer = part.batch.images * outer_step;
    return its;
  }
  void bring_filter(const KernelArgs& a, int input) const {
    cuda::launch(to_cudnn_kernel, cuda::blocks_for(order.elements()), cuda::kThreads, 0, a.stream, order,
                 a.in<float>(input), filter(a), order.elements());
  }
  /// The images of a part that the library reads.
  float* bring_images(const KernelArgs& a, const Part& part, int input) const {
    float* const from = a.var<float>(input) + part.batch.first * in_step;
    if (!padded) return from;
    const Frame its = frame_of(part);
    cuda::launch(pad_kernel, cuda::blocks_for(its.padded_elements()), cuda::kThreads, 0, a.stream, its,
                 static_cast<const float*>(from), images(a), its.padded_elements());
    return images(a);
  }

  void forward(const KernelArgs& a) const {
    bring_filter(a, 1);
    for (const Part& part : parts)
      part.library->run({bring_images(a, part, 0), filter(a), a.out<float>(0) + part.batch.first * out_step,
                         workspace(a), a.stream});
  }
  void backward_input(const KernelArgs& a) const {
    bring_filter(a, 1);
    for (const Part& part : parts) {
      float* const to = a.out<float>(0) + part.batch.first * in_step;
      part.library->run({padded ? images(a) : to, filter(a), a.var<float>(2) + part.batch.first * out_step,
                         workspace(a), a.stream});
      if (!padded) continue;
      const Frame its = frame_of(part);
      cuda::launch(crop_kernel, cuda::blocks_for(its.elements()), cuda::kThreads, 0, a.stream, its,
                   static_cast<const float*>(images(a)), to, its.elements());
    }
  }
  /// The parts' sums in their order, each added to those before it.
  void backward_filter(const KernelArgs& a) const {
    for (const Part& part : parts) {
      part.library->run({bring_images(a, part, 0), filter(a), a.var<float>(2) + part.batch.first * out_step,
                         workspace(a), a.stream});
      cuda::launch(part.batch.first == 0 ? from_cudnn_kernel : add_from_cudnn_kernel,
                   cuda::blocks_for(order.elements()), cuda::kThreads, 0, a.stream, order,
                   static_cast<const float*>(filter(a)), a.out<float>(0), order.elements());
    }
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

/// One group, and an image and a filter of sizes that cuDNN's descriptions hold.
bool supports(const Node& node, std::span<const OutputInfo> inputs) {
  if (!has_one_group(node, inputs)) return false;
  const auto fits = [](const Shape& shape) {
    const bool images = shape.rank() == 4 && shape[0] > 0;  // or a filter: a little more of it does no harm
    return shape.elements() / (images ? shape[0] : 1) <= cuda::kMostElements;
  };
  for (const OutputInfo& input : inputs)
    if (!fits(input.shape)) return false;
  return fits(node.outputs[0].shape);
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
