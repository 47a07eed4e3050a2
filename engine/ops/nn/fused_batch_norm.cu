// CUDA kernels of FusedBatchNorm and its gradients (formulas in fused_batch_norm.cc), in three launches: sums
// of two values over each channel in blocks, in double; what follows from them for each channel; all elements
// as a linear function of x (and dy). Blocks' borders depend on shapes only and their parts are added in
// order. Sums of x and x^2 are taken from the channel's first element on, so that a large mean cancels
// nothing.
#include <algorithm>

#include "engine/ops/common/cuda/launch.cuh"

namespace braid {
namespace {

/// x as [outer, channels, inner], and how its channels are summed: a block takes `lanes` channels (those of
/// 32 neighbours where inner is 1, else one) and `share` of the elements of each.
struct Layout {
  std::int64_t outer, channels, inner;
  int lanes, blocks;
  std::int64_t share;

  explicit Layout(const PrepareContext& c, const Shape& x) {
    const bool nchw = c.attr("data_format", std::string("NHWC")) == "NCHW";
    outer = nchw ? x[0] : x[0] * x[1] * x[2];
    channels = nchw ? x[1] : x[3];
    inner = nchw ? x[2] * x[3] : 1;
    lanes = inner == 1 ? 32 : 1;
    constexpr std::int64_t kMostBlocks = 64, kEach = 16;
    const std::int64_t each = kEach * (cuda::kThreads / lanes);
    blocks = static_cast<int>(std::clamp<std::int64_t>((count() + each - 1) / each, 1, kMostBlocks));
    share = (count() + blocks - 1) / blocks;
  }
  __host__ __device__ std::int64_t count() const { return outer * inner; }  // elements of a channel
  std::int64_t elements() const { return outer * inner * channels; }
  /// Element k of a channel.
  __device__ std::int64_t at(std::int64_t channel, std::int64_t k) const {
    if (inner == 1) return k * channels + channel;
    const std::int64_t o = k / inner;
    return (o * channels + channel) * inner + (k - o * inner);
  }
  __device__ std::int64_t channel_of(std::int64_t i) const {
    return inner == 1 ? i % channels : i / inner % channels;
  }
};

struct Sums {
  double first, second;
};

/// Forward: of d = x - (first of the channel) and d^2. Backward: of dy and dy (x - mean).
template <class T, bool kBackward>
__global__ void __launch_bounds__(cuda::kThreads)
    sum_kernel(Layout l, const T* x, const T* dy, const T* mean, Sums* parts) {
  __shared__ Sums shared[cuda::kThreads];
  const int lane = static_cast<int>(threadIdx.x) % l.lanes;
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * l.lanes + lane;
  const std::int64_t begin = blockIdx.y * l.share;
  const std::int64_t end = begin + l.share < l.count() ? begin + l.share : l.count();
  Sums sums{0, 0};
  if (channel < l.channels && begin < end) {
    const auto centre = static_cast<double>(kBackward ? mean[channel] : x[l.at(channel, 0)]);
#pragma unroll 4
    for (std::int64_t k = begin + threadIdx.x / l.lanes; k < end; k += cuda::kThreads / l.lanes) {
      const std::int64_t at = l.at(channel, k);
      const double d = static_cast<double>(x[at]) - centre;
      const double g = kBackward ? static_cast<double>(dy[at]) : d;
      sums.first += g;
      sums.second += g * d;
    }
  }
  shared[threadIdx.x] = sums;
  for (int half = cuda::kThreads / 2; half >= l.lanes; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) {
      shared[threadIdx.x].first += shared[threadIdx.x + half].first;
      shared[threadIdx.x].second += shared[threadIdx.x + half].second;
    }
  }
  if (static_cast<int>(threadIdx.x) < l.lanes && channel < l.channels)
    parts[blockIdx.y * l.channels + channel] = shared[threadIdx.x];
}

__device__ Sums total(const Layout& l, const Sums* parts, std::int64_t channel) {
  Sums sums{0, 0};
#pragma unroll 8
  for (int b = 0; b < l.blocks; ++b) {
    const Sums part = parts[b * l.channels + channel];
    sums.first += part.first;
    sums.second += part.second;
  }
  return sums;
}

/// An element's result is a * dy + b * x + c, in double; dy is absent forward.
struct Line {
  double a, b, c;
};

template <class T>
struct Forward {
  const T *x, *scale, *offset, *mean, *variance;
  T *batch_mean, *batch_variance, *saved_mean, *saved_variance;
  double epsilon, factor;
  bool training;
};

template <class T>
__global__ void forward_channels_kernel(Layout l, Forward<T> f, const Sums* parts, Line* lines) {
  for (std::int64_t ch = cuda::grid_index(); ch < l.channels; ch += cuda::grid_size()) {
    const auto n = static_cast<double>(l.count());
    double mean = 0, variance = 0, unbiased = 0;
    if (!f.training) {
      mean = static_cast<double>(f.mean[ch]);
      unbiased = variance = static_cast<double>(f.variance[ch]);
    } else if (l.count() != 0) {
      const Sums sums = total(l, parts, ch);
      const double shift = sums.first / n;
      mean = static_cast<double>(f.x[l.at(ch, 0)]) + shift;
      variance = sums.second / n - shift * shift;
      if (variance < 0) variance = 0;  // by rounding; NaN stays
      unbiased = n > 1 ? variance * n / (n - 1) : variance;
    }
    const auto blend = [&](const T* old, double fresh) {
      if (!f.training || f.factor == 1.0) return static_cast<T>(fresh);
      return static_cast<T>((1 - f.factor) * static_cast<double>(old[ch]) + f.factor * fresh);
    };
    f.batch_mean[ch] = blend(f.mean, mean);
    f.batch_variance[ch] = blend(f.variance, unbiased);
    f.saved_mean[ch] = static_cast<T>(mean);
    f.saved_variance[ch] = static_cast<T>(variance);
    const double slope = static_cast<double>(f.scale[ch]) / sqrt(variance + f.epsilon);
    lines[ch] = {0, slope, static_cast<double>(f.offset[ch]) - mean * slope};
  }
}

template <class T>
struct Backward {
  const T *scale, *mean, *variance;
  T *d_scale, *d_offset;
  T *zero_3, *zero_4;  // TensorFlow's outputs 3 and 4
  double epsilon;
  bool training;
};

/// dx = slope (dy - s / n - (x - m) q), q = t / (n (v + epsilon)), with s and t the sums.
template <class T>
__global__ void backward_channels_kernel(Layout l, Backward<T> f, const Sums* parts, Line* lines) {
  if (cuda::grid_index() == 0) *f.zero_3 = *f.zero_4 = T{0};
  for (std::int64_t ch = cuda::grid_index(); ch < l.channels; ch += cuda::grid_size()) {
    const Sums sums = total(l, parts, ch);
    const auto n = static_cast<double>(l.count());
    const double v = static_cast<double>(f.variance[ch]) + f.epsilon;
    const double slope = static_cast<double>(f.scale[ch]) / sqrt(v);
    f.d_scale[ch] = static_cast<T>(sums.second / sqrt(v));
    f.d_offset[ch] = static_cast<T>(sums.first);
    Line line{slope, 0, 0};
    if (f.training && l.count() != 0) {
      const double q = sums.second / (n * v);
      line.b = -slope * q;
      line.c = slope * (static_cast<double>(f.mean[ch]) * q - sums.first / n);
    }
    lines[ch] = line;
  }
}

template <class T, bool kBackward>
__global__ void apply_kernel(Layout l, const T* x, const T* dy, const Line* lines, T* out, std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    const Line line = lines[l.channel_of(i)];
    double y = line.b * static_cast<double>(x[i]) + line.c;
    if (kBackward) y += line.a * static_cast<double>(dy[i]);
    out[i] = static_cast<T>(y);
  }
}

/// The scratch memory: lines by channel, then parts.
struct Scratch {
  Line* lines;
  Sums* parts;
  Scratch(const Layout& l, void* memory)
      : lines(static_cast<Line*>(memory)), parts(reinterpret_cast<Sums*>(lines + l.channels)) {}
  static std::size_t bytes(const Layout& l) {
    return static_cast<std::size_t>(l.channels) *
           (sizeof(Line) + static_cast<std::size_t>(l.blocks) * sizeof(Sums));
  }
};

template <class T, bool kBackward>
void sum(const Layout& l, const Scratch& s, const KernelArgs& a, const T* x, const T* dy, const T* mean) {
  const dim3 grid(static_cast<unsigned>((l.channels + l.lanes - 1) / l.lanes),
                  static_cast<unsigned>(l.blocks));
  cuda::launch(sum_kernel<T, kBackward>, grid, cuda::kThreads, 0, a.stream, l, x, dy, mean, s.parts);
}

template <class T>
PreparedKernel forward(const PrepareContext& c) {
  const Layout l(c, c.inputs[0].shape);
  const double epsilon = c.attr("epsilon", 1e-4), factor = c.attr("exponential_avg_factor", 1.0);
  const bool training = c.attr("is_training", true);
  PreparedKernel kernel;
  kernel.scratch_bytes = Scratch::bytes(l);
  kernel.run = [=](const KernelArgs& a) {
    const Scratch s(l, a.scratch);
    const T* x = a.in<T>(0);
    if (training && l.elements() != 0) sum<T, false>(l, s, a, x, nullptr, nullptr);
    const Forward<T> f{.x = x,
                       .scale = a.in<T>(1),
                       .offset = a.in<T>(2),
                       .mean = a.in<T>(3),
                       .variance = a.in<T>(4),
                       .batch_mean = a.out<T>(1),
                       .batch_variance = a.out<T>(2),
                       .saved_mean = a.out<T>(3),
                       .saved_variance = a.out<T>(4),
                       .epsilon = epsilon,
                       .factor = factor,
                       .training = training};
    cuda::launch(forward_channels_kernel<T>, cuda::blocks_for(l.channels, 64), 64, 0, a.stream, l, f,
                 static_cast<const Sums*>(s.parts), s.lines);
    if (l.elements() != 0)
      cuda::launch(apply_kernel<T, false>, cuda::blocks_for(l.elements()), cuda::kThreads, 0, a.stream, l, x,
                   static_cast<const T*>(nullptr), static_cast<const Line*>(s.lines), a.out<T>(0),
                   l.elements());
  };
  return kernel;
}

template <class T>
PreparedKernel backward(const PrepareContext& c) {
  const Layout l(c, c.inputs[1].shape);
  const double epsilon = c.attr("epsilon", 1e-4);
  const bool training = c.attr("is_training", true);
  PreparedKernel kernel;
  kernel.scratch_bytes = Scratch::bytes(l);
  kernel.run = [=](const KernelArgs& a) {
    const Scratch s(l, a.scratch);
    const T *dy = a.in<T>(0), *x = a.in<T>(1);
    if (l.channels != 0) sum<T, true>(l, s, a, x, dy, a.in<T>(3));
    const Backward<T> f{.scale = a.in<T>(2),
                        .mean = a.in<T>(3),
                        .variance = a.in<T>(4),
                        .d_scale = a.out<T>(1),
                        .d_offset = a.out<T>(2),
                        .zero_3 = a.out<T>(3),
                        .zero_4 = a.out<T>(4),
                        .epsilon = epsilon,
                        .training = training};
    cuda::launch(backward_channels_kernel<T>, cuda::blocks_for(l.channels, 64), 64, 0, a.stream, l, f,
                 static_cast<const Sums*>(s.parts), s.lines);
    if (l.elements() != 0)
      cuda::launch(apply_kernel<T, true>, cuda::blocks_for(l.elements()), cuda::kThreads, 0, a.stream, l, x,
                   dy, static_cast<const Line*>(s.lines), a.out<T>(0), l.elements());
  };
  return kernel;
}

}  // namespace

void register_fused_batch_norm_cuda(OpRegistry& registry) {
  for (const std::string version : {"", "V2", "V3"}) {
    registry.add_cuda("FusedBatchNorm" + version, [](const PrepareContext& c) {
      return c.outputs[0].dtype == DType::Float32 ? forward<float>(c) : forward<double>(c);
    });
    registry.add_cuda("FusedBatchNormGrad" + version, [](const PrepareContext& c) {
      return c.outputs[0].dtype == DType::Float32 ? backward<float>(c) : backward<double>(c);
    });
  }
}

}  // namespace braid
