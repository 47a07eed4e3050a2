// CUDA kernels of DepthwiseConv2dNative and its gradients: those of depthwise_strips.h where they take the
// filter, else these, which take all. Images: a thread an element. The filter's gradient is a sum over the
// pixels of all images for each tap and channel: down columns for NHWC, a block a sum for NCHW, where pixels
// are neighbours. Halves that strips do not take are widened.
#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/fill.cuh"
#include "engine/ops/common/cuda/reduce.cuh"
#include "engine/ops/common/cuda/widened.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/nn/convolution.h"
#include "engine/ops/nn/depthwise_strips.h"

namespace braid {
namespace {

struct Position {
  int image, y, x, channel;
};

/// Images of fewer than 2^31 elements.
struct Images {
  int count, h, w, channels;
  cuda::Divider by_inner, by_middle, by_outer;

  Images(std::int64_t n, std::int64_t height, std::int64_t width, std::int64_t c, bool nchw)
      : count(static_cast<int>(n)),
        h(static_cast<int>(height)),
        w(static_cast<int>(width)),
        channels(static_cast<int>(c)),
        by_inner(nchw ? width : c),
        by_middle(nchw ? height : width),
        by_outer(nchw ? c : height) {}

  template <bool kNchw>
  __device__ Position locate(std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(i);
    const std::uint32_t a = by_inner.quotient(at), b = by_middle.quotient(a), image = by_outer.quotient(b);
    const auto inner = static_cast<int>(at - a * by_inner.divisor());
    const auto middle = static_cast<int>(a - b * by_middle.divisor());
    const auto outer = static_cast<int>(b - image * by_outer.divisor());
    if (kNchw) return {static_cast<int>(image), middle, inner, outer};
    return {static_cast<int>(image), outer, middle, inner};
  }
  template <bool kNchw>
  __device__ int offset(int image, int y, int x, int channel) const {
    return kNchw ? ((image * channels + channel) * h + y) * w + x
                 : ((image * h + y) * w + x) * channels + channel;
  }
};

struct Axis {
  int kernel, stride, dilation, before;

  explicit Axis(const WindowAxis& axis)
      : kernel(static_cast<int>(axis.kernel)),
        stride(static_cast<int>(axis.stride)),
        dilation(static_cast<int>(axis.dilation)),
        before(static_cast<int>(axis.pad_before)) {}

  /// The input's position under tap `tap` of output `out`; it may be outside.
  __device__ int input_of(int out, int tap) const { return out * stride - before + tap * dilation; }
  /// The output whose tap `tap` is over input `in`; -1 where there is none in front of `outputs`.
  __device__ int output_of(int in, int tap, int outputs) const {
    const int at = in + before - tap * dilation;
    if (at < 0 || at % stride != 0) return -1;
    return at / stride < outputs ? at / stride : -1;
  }
};

/// Filters are [h, w, in channels, multiplier]: [taps, out channels].
struct Depthwise {
  Images in, out;
  Axis h, w;
  int multiplier;

  explicit Depthwise(const Convolution& conv)
      : in(conv.batch, conv.in_h, conv.in_w, conv.in_c, conv.window.axes.nchw()),
        out(conv.batch, conv.out_h, conv.out_w, conv.out_c, conv.window.axes.nchw()),
        h(conv.window.h),
        w(conv.window.w),
        multiplier(static_cast<int>(conv.out_c / conv.in_c)) {}
};

template <bool kNchw>
__global__ void forward_kernel(const float* images, const float* filter, float* y,
                               const __grid_constant__ Depthwise d, std::int64_t elements) {
  for (std::int64_t i = cuda::grid_index(); i < elements; i += cuda::grid_size()) {
    const Position at = d.out.locate<kNchw>(i);
    const int channel = at.channel / d.multiplier;
    float sum = 0;
    for (int ky = 0; ky < d.h.kernel; ++ky) {
      const int iy = d.h.input_of(at.y, ky);
      if (iy < 0 || iy >= d.in.h) continue;
      for (int kx = 0; kx < d.w.kernel; ++kx) {
        const int ix = d.w.input_of(at.x, kx);
        if (ix < 0 || ix >= d.in.w) continue;
        sum += images[d.in.offset<kNchw>(at.image, iy, ix, channel)] *
               filter[(ky * d.w.kernel + kx) * d.out.channels + at.channel];
      }
    }
    y[i] = sum;
  }
}

template <bool kNchw>
__global__ void backward_input_kernel(const float* dy, const float* filter, float* dx,
                                      const __grid_constant__ Depthwise d, std::int64_t elements) {
  for (std::int64_t i = cuda::grid_index(); i < elements; i += cuda::grid_size()) {
    const Position at = d.in.locate<kNchw>(i);
    float sum = 0;
    for (int ky = 0; ky < d.h.kernel; ++ky) {
      const int oy = d.h.output_of(at.y, ky, d.out.h);
      if (oy < 0) continue;
      for (int kx = 0; kx < d.w.kernel; ++kx) {
        const int ox = d.w.output_of(at.x, kx, d.out.w);
        if (ox < 0) continue;
        for (int q = 0; q < d.multiplier; ++q) {
          const int channel = at.channel * d.multiplier + q;
          sum += dy[d.out.offset<kNchw>(at.image, oy, ox, channel)] *
                 filter[(ky * d.w.kernel + kx) * d.out.channels + channel];
        }
      }
    }
    dx[i] = sum;
  }
}

/// What pixel p of the outputs adds to the gradient of one tap of an output's channel.
template <bool kNchw>
struct Products {
  const float* images;
  const float* dy;
  const Depthwise& d;
  int ky, kx, channel;

  __device__ float operator()(std::int64_t p) const {
    // Dividers of NHWC images go through [count, h, w]; those of NCHW begin with [.., h, w].
    const auto at = static_cast<std::uint32_t>(p);
    const cuda::Divider &by_w = kNchw ? d.out.by_inner : d.out.by_middle,
                        &by_h = kNchw ? d.out.by_middle : d.out.by_outer;
    const std::uint32_t row = by_w.quotient(at), image = by_h.quotient(row);
    const auto x = static_cast<int>(at - row * by_w.divisor());
    const auto y = static_cast<int>(row - image * by_h.divisor());
    const int iy = d.h.input_of(y, ky), ix = d.w.input_of(x, kx);
    if (iy < 0 || iy >= d.in.h || ix < 0 || ix >= d.in.w) return 0;
    const auto n = static_cast<int>(image);
    return images[d.in.offset<kNchw>(n, iy, ix, channel / d.multiplier)] *
           dy[d.out.offset<kNchw>(n, y, x, channel)];
  }
};

/// For a ColumnReduction over [taps, pixels, out channels].
struct LoadProducts {
  const float* images;
  const float* dy;
  Depthwise d;
  __device__ Products<false> operator()(std::int64_t tap, std::int64_t channel) const {
    const int ky = static_cast<int>(tap) / d.w.kernel;
    return {images, dy, d, ky, static_cast<int>(tap) - ky * d.w.kernel, static_cast<int>(channel)};
  }
};
struct StoreSum {
  float* sums;
  __device__ void operator()(std::int64_t output, float sum) const { sums[output] = sum; }
};

/// A block for each tap and channel.
__global__ void backward_filter_nchw_kernel(const float* images, const float* dy, float* gradient,
                                            const __grid_constant__ Depthwise d, std::int64_t sums,
                                            std::int64_t pixels) {
  for (std::int64_t s = blockIdx.x; s < sums; s += gridDim.x) {
    const auto tap = static_cast<int>(s / d.out.channels);
    const int ky = tap / d.w.kernel;
    const Products<true> products{
        images, dy, d, ky, tap - ky * d.w.kernel, static_cast<int>(s - std::int64_t{tap} * d.out.channels)};
    float sum = 0;
    cuda::add_strided<reduce::Sum>(products, threadIdx.x, pixels, blockDim.x, sum);
    sum = cuda::block_reduce<reduce::Sum>(sum);
    if (threadIdx.x == 0) gradient[s] = sum;
  }
}

Convolution convolution_of(const PrepareContext& c, const Shape& in, const Shape& filter) {
  return make_convolution(c.node, in, filter, [&c](const std::string& message) { c.fail(message); });
}

using ImageKernel = void (*)(const float*, const float*, float*, Depthwise, std::int64_t);

/// Input `from` and the filter in input 1 to output 0, which is `elements` long.
PreparedKernel image_kernel(const Convolution& conv, int from, std::int64_t elements, ImageKernel nchw,
                            ImageKernel nhwc) {
  const ImageKernel function = conv.window.axes.nchw() ? nchw : nhwc;
  PreparedKernel kernel;
  kernel.run = [=](const KernelArgs& a) {
    cuda::launch(function, cuda::blocks_for(elements), cuda::kThreads, 0, a.stream, a.in<float>(from),
                 a.in<float>(1), a.out<float>(0), Depthwise(conv), elements);
  };
  return kernel;
}

PreparedKernel prepare_forward(const PrepareContext& c) {
  const DType dtype = c.outputs[0].dtype;  // as the inputs'
  const Convolution conv = convolution_of(c, c.inputs[0].shape, c.inputs[1].shape);
  if (conv.is_empty()) return cuda::zero_output(c);
  if (has_depthwise_strips(conv, dtype)) return cuda::depthwise_forward(conv, dtype);
  if (is_half(dtype)) return cuda::prepare_widened(c, prepare_forward);
  return image_kernel(conv, 0, c.outputs[0].shape.elements(), forward_kernel<true>, forward_kernel<false>);
}

PreparedKernel prepare_backward_input(const PrepareContext& c) {
  const DType dtype = c.outputs[0].dtype;  // as the inputs'
  const Convolution conv = convolution_of(c, c.outputs[0].shape, c.inputs[1].shape);
  if (conv.is_empty()) return cuda::zero_output(c);
  if (has_depthwise_strips(conv, dtype)) return cuda::depthwise_backward_input(conv, dtype);
  if (is_half(dtype)) return cuda::prepare_widened(c, prepare_backward_input);
  return image_kernel(conv, 2, c.outputs[0].shape.elements(), backward_input_kernel<true>,
                      backward_input_kernel<false>);
}

PreparedKernel prepare_backward_filter(const PrepareContext& c) {
  const DType dtype = c.outputs[0].dtype;  // as the inputs'
  const Convolution conv = convolution_of(c, c.inputs[0].shape, c.outputs[0].shape);
  const std::int64_t pixels = conv.batch * conv.out_h * conv.out_w, sums = c.outputs[0].shape.elements();
  if (conv.is_empty() || sums == 0) return cuda::zero_output(c);
  if (has_depthwise_strips(conv, dtype)) return cuda::depthwise_backward_filter(conv, dtype);
  if (is_half(dtype)) return cuda::prepare_widened(c, prepare_backward_filter);
  const Depthwise d(conv);
  PreparedKernel kernel;
  if (conv.window.axes.nchw()) {
    kernel.run = [=](const KernelArgs& a) {
      constexpr std::int64_t kMostBlocks = 1 << 20;
      cuda::launch(backward_filter_nchw_kernel, static_cast<unsigned>(std::min(sums, kMostBlocks)),
                   cuda::kThreads, 0, a.stream, a.in<float>(0), a.in<float>(2), a.out<float>(0), d, sums,
                   pixels);
    };
    return kernel;
  }
  const cuda::ColumnReduction<reduce::Sum, float> reduction(sums / conv.out_c, pixels, conv.out_c);
  kernel.scratch_bytes = reduction.scratch_bytes();
  kernel.run = [=](const KernelArgs& a) {
    reduction.run(a.stream, LoadProducts{a.in<float>(0), a.in<float>(2), d}, StoreSum{a.out<float>(0)},
                  a.scratch);
  };
  return kernel;
}

bool supports(const Node& node, std::span<const OutputInfo> inputs) {
  for (const OutputInfo& input : inputs)
    if (input.shape.elements() >= cuda::kDividerLimit) return false;
  return node.outputs[0].shape.elements() < cuda::kDividerLimit;
}

}  // namespace

void register_depthwise_conv2d_cuda(OpRegistry& registry) {
  cuda_takes_halves(
      {"DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter"});
  registry.add_cuda("DepthwiseConv2dNative", prepare_forward, supports);
  registry.add_cuda("DepthwiseConv2dNativeBackpropInput", prepare_backward_input, supports);
  registry.add_cuda("DepthwiseConv2dNativeBackpropFilter", prepare_backward_filter, supports);
}

}  // namespace braid
