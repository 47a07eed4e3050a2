// CUDA kernels of Conv2D, Conv3D, their gradients and braid.FusedConv2D: cuDNN (convolution_cudnn.h). The
// filter is brought into cuDNN's order of axes and back, unless it has that order. Images whose paddings in
// front and behind differ (SAME with a stride), and for which cuDNN has no engine as they are, are padded
// into scratch memory first, or their gradient is cut out of one that is. A batch for which cuDNN has no
// engine is taken in parts, each after the other on the stream. Float32, or images and filter of halves;
// where cuDNN has no engine for these they are widened. Depthwise convolutions are in depthwise_conv2d.cu.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/ops/common/cuda/fill.cuh"
#include "engine/ops/common/cuda/widened.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/nn/convolution_cudnn.h"
#include "engine/ops/nn/convolution_layer.h"
#include "engine/ops/nn/few_channels.h"
#include "engine/ops/nn/filter_order.h"

namespace braid {
namespace {

/// Images as [outer, d, h, w, inner] inside padded ones.
struct Frame {
  std::int64_t outer, d, h, w, inner;
  std::int64_t padded_d, padded_h, padded_w, front, top, left;

  std::int64_t elements() const { return outer * d * h * w * inner; }
  std::int64_t padded_elements() const { return outer * padded_d * padded_h * padded_w * inner; }
};

template <class T>
__global__ void pad_kernel(Frame f, const T* images, T* padded, std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    const std::int64_t pixel = i / f.inner, row = pixel / f.padded_w, plane = row / f.padded_h;
    const std::int64_t image = plane / f.padded_d, z = plane - image * f.padded_d - f.front;
    const std::int64_t y = row - plane * f.padded_h - f.top, x = pixel - row * f.padded_w - f.left;
    const bool inside = z >= 0 && z < f.d && y >= 0 && y < f.h && x >= 0 && x < f.w;
    padded[i] =
        inside ? images[(((image * f.d + z) * f.h + y) * f.w + x) * f.inner + (i - pixel * f.inner)] : T(0);
  }
}
template <class T>
__global__ void crop_kernel(Frame f, const T* padded, T* images, std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    const std::int64_t pixel = i / f.inner, row = pixel / f.w, plane = row / f.h;
    const std::int64_t image = plane / f.d, z = plane - image * f.d + f.front;
    const std::int64_t y = row - plane * f.h + f.top, x = pixel - row * f.w + f.left;
    images[i] = padded[(((image * f.padded_d + z) * f.padded_h + y) * f.padded_w + x) * f.inner +
                       (i - pixel * f.inner)];
  }
}

std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

/// A convolution with what is around the library's calls, one for each part of the batch.
struct Pass {
  using Part = cuda::ConvolutionPart;
  std::vector<Part> parts;  // none: the library has no engine for these halves
  DType dtype;
  cuda::FilterOrder order;
  Frame frame;  // of the first part; the last may have fewer images
  bool padded = false;
  std::int64_t in_step, out_step;  // elements of an image, of the graph's tensors
  std::int64_t outer_step;         // of the frame's outer, for an image
  std::size_t workspace_bytes = 0;
  bool has_bias = false, has_residual = false;  // inputs 2 and 3 of a layer

  Pass(const PrepareContext& c, Convolution conv, cuda::ConvolutionPass pass, DType type,
       const cuda::ConvolutionLayer& layer)
      : dtype(type), has_bias(layer.has_bias), has_residual(layer.has_residual) {
    WindowAxis &d = conv.window.d, &h = conv.window.h, &w = conv.window.w;
    const bool nchw = conv.window.axes.nchw();
    order = {conv.taps(), conv.in_c / conv.groups, conv.out_c, nchw, dtype, conv.outputs_first};
    in_step = conv.in_image();
    out_step = conv.out_image();
    outer_step = nchw ? conv.in_c : 1;
    const cuda::OwnConvolution own = [pass, type](const Convolution& part) {
      return cuda::prepare_few_channels(part, pass, type);
    };
    frame = {.outer = 0,
             .d = conv.in_d,
             .h = conv.in_h,
             .w = conv.in_w,
             .inner = nchw ? 1 : conv.in_c,
             .padded_d = conv.in_d + d.pad_before + d.pad_after,
             .padded_h = conv.in_h + h.pad_before + h.pad_after,
             .padded_w = conv.in_w + w.pad_before + w.pad_after,
             .front = d.pad_before,
             .top = h.pad_before,
             .left = w.pad_before};
    parts = cuda::prepare_cudnn(c, conv, pass, dtype, layer, own);
    const auto is_uneven = [](const WindowAxis& axis) { return axis.pad_before != axis.pad_after; };
    padded = parts.empty() && (is_uneven(d) || is_uneven(h) || is_uneven(w));
    if (padded) {
      conv.in_d = frame.padded_d;
      conv.in_h = frame.padded_h;
      conv.in_w = frame.padded_w;
      for (WindowAxis* axis : {&d, &h, &w}) axis->pad_before = axis->pad_after = 0;
      parts = cuda::prepare_cudnn(c, conv, pass, dtype, layer, own);
    }
    if (parts.empty() && is_half(dtype)) return;
    if (parts.empty()) cuda::refuse_convolution(c, conv);
    for (const Part& part : parts) workspace_bytes = std::max(workspace_bytes, part.library->workspace_bytes);
    frame.outer = parts.front().batch.images * outer_step;
  }

  std::size_t filter_bytes() const { return rounded(order.bytes()); }
  std::size_t padded_bytes() const {
    return padded ? rounded(static_cast<std::size_t>(frame.padded_elements()) * dtype_size(dtype)) : 0;
  }
  std::size_t scratch_bytes() const { return filter_bytes() + padded_bytes() + workspace_bytes; }

  // The parts of the scratch memory.
  void* filter(const KernelArgs& a) const { return a.scratch; }
  void* images(const KernelArgs& a) const { return static_cast<char*>(a.scratch) + filter_bytes(); }
  void* workspace(const KernelArgs& a) const {
    return static_cast<char*>(a.scratch) + filter_bytes() + padded_bytes();
  }

  /// A part's images into padded ones, or out of them.
  void move(const Part& part, StreamRef stream, const void* from, void* to, bool pads) const {
    Frame its = frame;
    its.outer = part.batch.images * outer_step;
    const std::int64_t n = pads ? its.padded_elements() : its.elements();
    const auto move_as = [&]<class T>(T) {
      cuda::launch(pads ? pad_kernel<T> : crop_kernel<T>, cuda::blocks_for(n), cuda::kThreads, 0, stream, its,
                   static_cast<const T*>(from), static_cast<T*>(to), n);
    };
    is_half(dtype) ? move_as(std::uint16_t{}) : move_as(float{});
  }
  /// A part's images in a tensor whose images have `step` elements.
  void* part_of(void* tensor, const Part& part, std::int64_t step) const {
    return static_cast<char*>(tensor) + static_cast<std::size_t>(part.batch.first * step) * dtype_size(dtype);
  }
  /// The images of a part that the library reads.
  void* bring_images(const KernelArgs& a, const Part& part, int input) const {
    void* const from = part_of(a.inputs[input], part, in_step);
    if (!padded) return from;
    move(part, a.stream, from, images(a), true);
    return images(a);
  }

  /// The filter as the library reads it.
  void* bring_filter(const KernelArgs& a) const {
    if (order.same && cuda::is_aligned16(a.inputs[1])) return a.inputs[1];
    to_cudnn(a.stream, order, a.inputs[1], filter(a));
    return filter(a);
  }

  void forward(const KernelArgs& a) const {
    void* const brought = bring_filter(a);
    for (const Part& part : parts)
      part.library->run({.images = bring_images(a, part, 0),
                         .filter = brought,
                         .outputs = part_of(a.outputs[0], part, out_step),
                         .workspace = workspace(a),
                         .stream = a.stream,
                         .bias = has_bias ? a.in<float>(2) : nullptr,
                         .residual = has_residual ? part_of(a.inputs[3], part, out_step) : nullptr});
  }
  void backward_input(const KernelArgs& a) const {
    void* const brought = bring_filter(a);
    for (const Part& part : parts) {
      void* const to = part_of(a.outputs[0], part, in_step);
      part.library->run(
          {padded ? images(a) : to, brought, part_of(a.inputs[2], part, out_step), workspace(a), a.stream});
      if (padded) move(part, a.stream, images(a), to, false);
    }
  }
  /// The parts' sums in their order, each added to those before it.
  void backward_filter(const KernelArgs& a) const {
    for (const Part& part : parts) {
      const bool is_first = part.batch.first == 0;
      const bool in_place = is_first && order.same && cuda::is_aligned16(a.outputs[0]);
      part.library->run({bring_images(a, part, 0), in_place ? a.outputs[0] : filter(a),
                         part_of(a.inputs[2], part, out_step), workspace(a), a.stream});
      if (!in_place) from_cudnn(a.stream, order, filter(a), a.outputs[0], !is_first);
    }
  }
};

/// What the pass reads and writes, and the shapes of its images and filter.
struct Kind {
  cuda::ConvolutionPass pass;
  void (Pass::*run)(const KernelArgs&) const;
  Shape images, filter;
  bool is_layer = false;
};

Kind forward_of(const PrepareContext& c) {
  return {cuda::ConvolutionPass::Forward, &Pass::forward, c.inputs[0].shape, c.inputs[1].shape};
}
Kind layer_of(const PrepareContext& c) {
  Kind kind = forward_of(c);
  kind.is_layer = true;
  return kind;
}
Kind backward_input_of(const PrepareContext& c) {
  return {cuda::ConvolutionPass::BackwardInput, &Pass::backward_input, c.outputs[0].shape, c.inputs[1].shape};
}
Kind backward_filter_of(const PrepareContext& c) {
  return {cuda::ConvolutionPass::BackwardFilter, &Pass::backward_filter, c.inputs[0].shape,
          c.outputs[0].shape};
}

template <Kind (*kKindOf)(const PrepareContext&)>
PreparedKernel prepare(const PrepareContext& c) {
  const Kind kind = kKindOf(c);
  const Convolution conv = make_convolution(c.node, kind.images, kind.filter,
                                            [&c](const std::string& message) { c.fail(message); });
  if (conv.is_empty()) return cuda::zero_output(c);
  const DType dtype = c.outputs[0].dtype;  // as the inputs'
  cuda::ConvolutionLayer layer;
  if (kind.is_layer) {
    layer.has_bias = true;
    layer.has_residual = c.inputs.size() == 4;
    layer.relu = c.attr<bool>("relu", false);
    layer.after = [conv, dtype, relu = layer.relu](const cuda::ConvolutionArgs& a, std::int64_t images) {
      cuda::finish_layer(conv, dtype, relu, a, images);
    };
  }
  auto pass = std::make_shared<const Pass>(c, conv, kind.pass, dtype, layer);
  if (pass->parts.empty()) return cuda::prepare_widened(c, prepare<kKindOf>);
  PreparedKernel kernel;
  kernel.scratch_bytes = pass->scratch_bytes();
  kernel.run = [pass, run = kind.run](const KernelArgs& a) { ((*pass).*run)(a); };
  return kernel;
}

/// An image and a filter of sizes that cuDNN's descriptions hold.
bool supports(const Node& node, std::span<const OutputInfo> inputs) {
  const auto fits = [](const Shape& shape) {
    const bool images = shape.rank() >= 4 && shape[0] > 0;  // or a filter: a little more of it does no harm
    return shape.elements() / (images ? shape[0] : 1) <= cuda::kMostElements;
  };
  for (const OutputInfo& input : inputs)
    if (!fits(input.shape)) return false;
  return fits(node.outputs[0].shape);
}

}  // namespace

void register_conv2d_cuda(OpRegistry& registry) {
  for (const char* op : {"Conv2D", "Conv3D"}) registry.add_cuda(op, prepare<forward_of>, supports);
  for (const char* op : {"Conv2DBackpropInput", "Conv3DBackpropInputV2"})
    registry.add_cuda(op, prepare<backward_input_of>, supports);
  for (const char* op : {"Conv2DBackpropFilter", "Conv3DBackpropFilterV2"})
    registry.add_cuda(op, prepare<backward_filter_of>, supports);
  registry.add_cuda("braid.FusedConv2D", prepare<layer_of>, supports);
  cuda_takes_halves({"Conv2D", "braid.FusedConv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "Conv3D",
                     "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"});
}

}  // namespace braid
