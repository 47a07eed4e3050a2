// CUDA kernels of Conv2D, its gradients and braid.FusedConv2D: cuDNN (convolution_cudnn.h). The filter is
// brought into cuDNN's order of axes and back. Images whose paddings in front and behind differ (SAME with a
// stride), and for which cuDNN has no engine as they are, are padded into scratch memory first, or their
// gradient is cut out of one that is. A batch for which cuDNN has no engine is taken in parts, each after the
// other on the stream. Depthwise convolutions are in depthwise_conv2d.cu.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/ops/common/cuda/fill.cuh"
#include "engine/ops/nn/convolution_cudnn.h"
#include "engine/ops/nn/few_channels.h"

namespace braid {
namespace {

/// A filter between the graph's order [taps, in, out] and cuDNN's: [out, taps, in] (NHWC) or [out, in, taps].
struct FilterOrder {
  std::int64_t taps, in, out;
  bool nchw;

  std::int64_t elements() const { return taps * in * out; }
};

constexpr int kTile = 32, kTileRows = 8;

/// to[column, row] = (kAdd: +) from[row, column], a block of kTile x kTileRows threads a tile.
template <bool kAdd>
__global__ void __launch_bounds__(kTile* kTileRows)
    swap_kernel(const float* from, float* to, std::int64_t rows, std::int64_t columns, std::int64_t across) {
  __shared__ float tile[kTile][kTile + 1];
  const std::int64_t first_row = blockIdx.x / across * kTile, first_column = blockIdx.x % across * kTile;
  const auto lane = static_cast<std::int64_t>(threadIdx.x);
#pragma unroll
  for (int i = static_cast<int>(threadIdx.y); i < kTile; i += kTileRows)
    if (first_row + i < rows && first_column + lane < columns)
      tile[i][lane] = from[(first_row + i) * columns + first_column + lane];
  __syncthreads();
#pragma unroll
  for (int i = static_cast<int>(threadIdx.y); i < kTile; i += kTileRows)
    if (first_column + i < columns && first_row + lane < rows) {
      float& result = to[(first_column + i) * rows + first_row + lane];
      result = kAdd ? result + tile[lane][i] : tile[lane][i];
    }
}

/// Element i of the graph's order [taps, in, out] is element place(i) of [out, in, taps].
__device__ std::int64_t place_of(const FilterOrder& order, std::int64_t i) {
  const std::int64_t rest = i / order.out, o = i - rest * order.out;
  const std::int64_t tap = rest / order.in, channel = rest - tap * order.in;
  return (o * order.in + channel) * order.taps + tap;
}
template <bool kTo, bool kAdd>
__global__ void reorder_kernel(FilterOrder order, const float* from, float* to, std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    if constexpr (kTo)
      to[place_of(order, i)] = from[i];
    else if constexpr (kAdd)
      to[i] += from[place_of(order, i)];
    else
      to[i] = from[place_of(order, i)];
  }
}

template <bool kAdd>
void swap(StreamRef stream, const float* from, float* to, std::int64_t rows, std::int64_t columns) {
  const std::int64_t across = (columns + kTile - 1) / kTile;
  cuda::launch(swap_kernel<kAdd>, static_cast<unsigned>((rows + kTile - 1) / kTile * across),
               dim3(kTile, kTileRows), 0, stream, from, to, rows, columns, across);
}

void to_cudnn(StreamRef stream, const FilterOrder& order, const float* from, float* to) {
  const std::int64_t n = order.elements();
  if (!order.nchw) return swap<false>(stream, from, to, order.taps * order.in, order.out);
  cuda::launch(reorder_kernel<true, false>, cuda::blocks_for(n), cuda::kThreads, 0, stream, order, from, to,
               n);
}

void from_cudnn(StreamRef stream, const FilterOrder& order, const float* from, float* to, bool add) {
  const std::int64_t n = order.elements(), rows = order.taps * order.in;
  if (!order.nchw)
    return add ? swap<true>(stream, from, to, order.out, rows)
               : swap<false>(stream, from, to, order.out, rows);
  cuda::launch(add ? reorder_kernel<false, true> : reorder_kernel<false, false>, cuda::blocks_for(n),
               cuda::kThreads, 0, stream, order, from, to, n);
}

/// y = relu(y + bias + residual) in place, in packs; bias and residual may be absent. `run` packs have one
/// channel (kRuns), else the last axis is `channels` packs.
template <int kCount, bool kRuns>
__global__ void layer_kernel(float* y, const float* bias, const float* residual, bool relu, std::int64_t n,
                             std::uint32_t channels, std::uint32_t run) {
  using P = cuda::Pack<float, kCount>;
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    P p = reinterpret_cast<const P*>(y)[i];
    if (bias) {
      const std::int64_t at = kRuns ? i / run % channels : i % channels;
      P b;
      if constexpr (kRuns) {
#pragma unroll
        for (int e = 0; e < kCount; ++e) b.at[e] = bias[at];
      } else {
        b = reinterpret_cast<const P*>(bias)[at];
      }
#pragma unroll
      for (int e = 0; e < kCount; ++e) p.at[e] += b.at[e];
    }
    if (residual) {
      const P r = reinterpret_cast<const P*>(residual)[i];
#pragma unroll
      for (int e = 0; e < kCount; ++e) p.at[e] += r.at[e];
    }
    if (relu)
#pragma unroll
      for (int e = 0; e < kCount; ++e) p.at[e] = p.at[e] < 0 ? 0 : p.at[e];
    reinterpret_cast<P*>(y)[i] = p;
  }
}

void finish_layer(const Convolution& conv, bool relu, const cuda::ConvolutionArgs& a, std::int64_t images) {
  const std::int64_t run = conv.window.axes.nchw() ? conv.out_h * conv.out_w : 1;
  const std::int64_t n = images * conv.out_h * conv.out_w * conv.out_c;
  const bool packed = (run == 1 ? conv.out_c : run) % 4 == 0 && cuda::is_aligned16(a.outputs) &&
                      cuda::is_aligned16(a.bias) && cuda::is_aligned16(a.residual);
  const auto launch = [&](auto kernel, std::int64_t pack) {
    const std::int64_t channels = run == 1 ? conv.out_c / pack : conv.out_c;
    cuda::launch(kernel, cuda::blocks_for(n / pack), cuda::kThreads, 0, a.stream, a.outputs, a.bias,
                 a.residual, relu, n / pack, static_cast<std::uint32_t>(channels),
                 static_cast<std::uint32_t>(run == 1 ? 1 : run / pack));
  };
  if (run == 1)
    packed ? launch(layer_kernel<4, false>, 4) : launch(layer_kernel<1, false>, 1);
  else
    packed ? launch(layer_kernel<4, true>, 4) : launch(layer_kernel<1, true>, 1);
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
  bool has_bias = false, has_residual = false;  // inputs 2 and 3 of a layer

  Pass(const PrepareContext& c, Convolution conv, cuda::ConvolutionPass pass,
       const cuda::ConvolutionLayer& layer)
      : has_bias(layer.has_bias), has_residual(layer.has_residual) {
    WindowAxis &h = conv.window.h, &w = conv.window.w;
    const bool nchw = conv.window.axes.nchw();
    order = {h.kernel * w.kernel, conv.in_c / conv.groups, conv.out_c, nchw};
    in_step = conv.in_h * conv.in_w * conv.in_c;
    out_step = conv.out_h * conv.out_w * conv.out_c;
    outer_step = nchw ? conv.in_c : 1;
    const auto own = [pass](const Convolution& part) { return cuda::prepare_few_channels(part, pass); };
    frame = {.outer = 0,
             .h = conv.in_h,
             .w = conv.in_w,
             .inner = nchw ? 1 : conv.in_c,
             .padded_h = conv.in_h + h.pad_before + h.pad_after,
             .padded_w = conv.in_w + w.pad_before + w.pad_after,
             .top = h.pad_before,
             .left = w.pad_before};
    parts = cuda::prepare_cudnn(c, conv, pass, layer, own);
    padded = parts.empty() && (h.pad_before != h.pad_after || w.pad_before != w.pad_after);
    if (padded) {
      conv.in_h = frame.padded_h;
      conv.in_w = frame.padded_w;
      h.pad_before = h.pad_after = w.pad_before = w.pad_after = 0;
      parts = cuda::prepare_cudnn(c, conv, pass, layer, own);
    }
    if (parts.empty()) cuda::refuse_convolution(c, conv);
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
    to_cudnn(a.stream, order, a.in<float>(1), filter(a));
    for (const Part& part : parts)
      part.library->run({.images = bring_images(a, part, 0),
                         .filter = filter(a),
                         .outputs = a.out<float>(0) + part.batch.first * out_step,
                         .workspace = workspace(a),
                         .stream = a.stream,
                         .bias = has_bias ? a.in<float>(2) : nullptr,
                         .residual = has_residual ? a.in<float>(3) + part.batch.first * out_step : nullptr});
  }
  void backward_input(const KernelArgs& a) const {
    to_cudnn(a.stream, order, a.in<float>(1), filter(a));
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
      from_cudnn(a.stream, order, filter(a), a.out<float>(0), part.batch.first != 0);
    }
  }
};

/// `in` and `filter` are the shapes of the convolution's images and filter.
PreparedKernel prepare(const PrepareContext& c, const Shape& in, const Shape& filter,
                       cuda::ConvolutionPass kind, void (Pass::*run)(const KernelArgs&) const,
                       bool is_layer = false) {
  const Convolution conv =
      make_convolution(c.node, in, filter, [&c](const std::string& message) { c.fail(message); });
  if (conv.is_empty()) return cuda::zero_output(c);
  cuda::ConvolutionLayer layer;
  if (is_layer) {
    layer.has_bias = true;
    layer.has_residual = c.inputs.size() == 4;
    layer.relu = c.attr<bool>("relu", false);
    layer.after = [conv, relu = layer.relu](const cuda::ConvolutionArgs& a, std::int64_t images) {
      finish_layer(conv, relu, a, images);
    };
  }
  auto pass = std::make_shared<const Pass>(c, conv, kind, layer);
  PreparedKernel kernel;
  kernel.scratch_bytes = pass->scratch_bytes();
  kernel.run = [pass, run](const KernelArgs& a) { ((*pass).*run)(a); };
  return kernel;
}

/// An image and a filter of sizes that cuDNN's descriptions hold.
bool supports(const Node& node, std::span<const OutputInfo> inputs) {
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
  for (const bool is_layer : {false, true})
    registry.add_cuda(
        is_layer ? "braid.FusedConv2D" : "Conv2D",
        [is_layer](const PrepareContext& c) {
          return prepare(c, c.inputs[0].shape, c.inputs[1].shape, cuda::ConvolutionPass::Forward,
                         &Pass::forward, is_layer);
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
