// CUDA kernels of FusedBatchNorm, its gradients and statistics (formulas in fused_batch_norm.cc), in three
// launches: sums of two values over each channel in blocks, in double; what follows from them for each
// channel; all elements as a linear function of x (and dy). Blocks' borders depend on shapes only and their
// parts are added in order. Sums of x and x^2 are taken from the channel's first element on, so that a large
// mean cancels nothing. Where channels are the last axis, a thread takes as many neighbours as 16 bytes hold.
// Statistics are of halves, too.
#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/half.h"
#include "engine/ops/common/halves.h"

namespace braid {
namespace {

using cuda::Pack;

constexpr int kTogether = 8;        // loads of a thread that are under way together
constexpr int kTogetherHalves = 4;  // of halves, so that a processor holds four blocks
constexpr int kMostLanes = 32;

/// x as [outer, channels, inner], and how its channels are summed: a block takes `lanes` neighbouring packs
/// of channels (one where inner is not 1) and `share` of the elements of each. As many of its threads as are
/// a multiple of `lanes` have some.
struct Layout {
  std::int64_t outer, channels, inner;
  int pack, lanes, blocks;
  std::int64_t share;

  Layout(const PrepareContext& c, const Shape& x, int most_pack) {
    const bool nchw = c.attr("data_format", std::string("NHWC")) == "NCHW";
    outer = nchw ? x[0] : x[0] * x[1] * x[2];
    channels = nchw ? x[1] : x[3];
    inner = nchw ? x[2] * x[3] : 1;
    pack = inner == 1 && channels % most_pack == 0 ? most_pack : 1;
    lanes = inner == 1 ? static_cast<int>(std::clamp<std::int64_t>(packs(), 1, kMostLanes)) : 1;
    constexpr std::int64_t kBusyBlocks = 132 * 4;
    const std::int64_t each = kTogether * (cuda::kThreads / lanes);
    const std::int64_t wanted = std::max<std::int64_t>((kBusyBlocks + tiles() - 1) / tiles(), 1);
    blocks = static_cast<int>(std::clamp<std::int64_t>((count() + each - 1) / each, 1, wanted));
    share = (count() + blocks - 1) / blocks;
  }
  __host__ __device__ std::int64_t packs() const { return channels / pack; }
  std::int64_t tiles() const { return std::max<std::int64_t>((packs() + lanes - 1) / lanes, 1); }
  __host__ __device__ std::int64_t count() const { return outer * inner; }  // elements of a channel
  std::int64_t elements() const { return outer * inner * channels; }
  /// Where pack `k` of a pack of channels is, in packs. kLast: inner is 1.
  template <bool kLast>
  __device__ std::int64_t at(std::int64_t channel, std::int64_t k) const {
    if (kLast || inner == 1) return k * packs() + channel;
    // Divisions of 32 bits where they do: those of 64 are many instructions.
    const std::int64_t o =
        k < (1LL << 31) && inner < (1LL << 31)
            ? static_cast<std::int64_t>(static_cast<std::uint32_t>(k) / static_cast<std::uint32_t>(inner))
            : k / inner;
    return (o * channels + channel) * inner + (k - o * inner);
  }
};

struct Sums {
  double first, second;
};

/// What a thread adds up: of halves as float32, which is much finer than they are; else as double.
template <class X, class T>
using Part = std::conditional_t<std::is_same_v<X, T>, double, T>;

/// Forward: of d = x - (first of the channel) and d^2. Backward: of dy and dy (x - mean). A few elements are
/// added as T, those sums as Part. X: T, or halves forward.
template <class X, class T, int kCount, bool kBackward>
__global__ void __launch_bounds__(cuda::kThreads, std::is_same_v<X, T> ? 1 : 4)
    sum_kernel(Layout l, const X* x_at, const X* dy_at, const T* mean, Sums* parts) {
  using P = Pack<X, kCount>;
  using S = Part<X, T>;
  constexpr bool kLast = kCount > 1;
  constexpr int kLoads = std::is_same_v<X, T> ? kTogether : kTogetherHalves;
  __shared__ S shared[2][kCount][cuda::kThreads];
  const auto *x = reinterpret_cast<const P*>(x_at), *dy = reinterpret_cast<const P*>(dy_at);
  const int lane = static_cast<int>(threadIdx.x) % l.lanes, step = cuda::kThreads / l.lanes;
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * l.lanes + lane;
  const std::int64_t begin = blockIdx.y * l.share;
  const std::int64_t end = begin + l.share < l.count() ? begin + l.share : l.count();
  S first[kCount] = {}, second[kCount] = {};
  if (channel < l.packs() && begin < end && static_cast<int>(threadIdx.x) < step * l.lanes) {
    T centre[kCount];
    if constexpr (kBackward) {
      const auto of_channels = reinterpret_cast<const Pack<T, kCount>*>(mean)[channel];
#pragma unroll
      for (int e = 0; e < kCount; ++e) centre[e] = of_channels.at[e];
    } else {
      const P of_channels = x[l.at<kLast>(channel, 0)];
#pragma unroll
      for (int e = 0; e < kCount; ++e) centre[e] = static_cast<T>(of_channels.at[e]);
    }
    const std::int64_t hop = step * l.packs();  // where channels are last
    const auto take = [&](std::int64_t k, auto loads) {
      constexpr int kOf = decltype(loads)::value;
      const std::int64_t at = l.at<kLast>(channel, k);
      P values[kOf], gradients[kOf];
#pragma unroll
      for (int j = 0; j < kOf; ++j) {
        const std::int64_t its = kLast ? at + j * hop : l.at<kLast>(channel, k + j * step);
        values[j] = x[its];
        if (kBackward) gradients[j] = dy[its];
      }
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        T some_first{0}, some_second{0};
#pragma unroll
        for (int j = 0; j < kOf; ++j) {
          const T d = static_cast<T>(values[j].at[e]) - centre[e];
          const T g = kBackward ? static_cast<T>(gradients[j].at[e]) : d;
          some_first += g;
          some_second += g * d;
        }
        first[e] += static_cast<S>(some_first);
        second[e] += static_cast<S>(some_second);
      }
    };
    std::int64_t k = begin + threadIdx.x / l.lanes;
    for (; k + (kLoads - 1) * step < end; k += kLoads * step) take(k, std::integral_constant<int, kLoads>{});
    for (; k < end; k += step) take(k, std::integral_constant<int, 1>{});
  }
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    shared[0][e][threadIdx.x] = first[e];
    shared[1][e][threadIdx.x] = second[e];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < l.lanes * kCount; i += cuda::kThreads) {
    const int of_lane = i / kCount, e = i % kCount;
    const std::int64_t its = static_cast<std::int64_t>(blockIdx.x) * l.lanes + of_lane;
    if (its >= l.packs()) continue;
    Sums sums{0, 0};
    for (int row = 0; row < step; ++row) {
      sums.first += static_cast<double>(shared[0][e][row * l.lanes + of_lane]);
      sums.second += static_cast<double>(shared[1][e][row * l.lanes + of_lane]);
    }
    parts[blockIdx.y * l.channels + its * kCount + e] = sums;
  }
}

/// The sums of a channel, whose warp calls this; every lane gets them.
__device__ Sums total(const Layout& l, const Sums* parts, std::int64_t channel) {
  Sums sums{0, 0};
#pragma unroll 4
  for (int b = static_cast<int>(threadIdx.x) % 32; b < l.blocks; b += 32) {
    const Sums part = parts[b * l.channels + channel];
    sums.first += part.first;
    sums.second += part.second;
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    sums.first += __shfl_xor_sync(0xffffffffU, sums.first, distance);
    sums.second += __shfl_xor_sync(0xffffffffU, sums.second, distance);
  }
  return sums;
}

/// An element's result is a * dy + b * (x - centre) + c; dy is absent forward.
template <class T>
struct Line {
  T a, b, c, centre;
};

template <class X, class T>
struct Forward {
  const X* x;
  const T *scale, *offset, *mean, *variance;
  T *batch_mean, *batch_variance, *saved_mean, *saved_variance;
  T* slope;  // of BatchNormStatistics, which has no offset and no lines; else null
  double epsilon, factor;
  bool training;
};

template <class X, class T>
__global__ void forward_channels_kernel(Layout l, Forward<X, T> f, const Sums* parts, Line<T>* lines) {
  const std::int64_t ch = cuda::grid_index() / 32;
  if (ch >= l.channels) return;
  const auto n = static_cast<double>(l.count());
  double mean = 0, variance = 0, unbiased = 0;
  if (!f.training) {
    mean = static_cast<double>(f.mean[ch]);
    unbiased = variance = static_cast<double>(f.variance[ch]);
  } else if (l.count() != 0) {
    const Sums sums = total(l, parts, ch);
    const double shift = sums.first / n;
    const std::int64_t first = l.inner == 1 ? ch : ch * l.inner;
    mean = static_cast<double>(static_cast<T>(f.x[first])) + shift;
    variance = sums.second / n - shift * shift;
    if (variance < 0) variance = 0;  // by rounding; NaN stays
    unbiased = n > 1 ? variance * n / (n - 1) : variance;
  }
  if (threadIdx.x % 32 != 0) return;
  const auto blend = [&](const T* old, double fresh) {
    if (!f.training || f.factor == 1.0) return static_cast<T>(fresh);
    return static_cast<T>((1 - f.factor) * static_cast<double>(old[ch]) + f.factor * fresh);
  };
  f.batch_mean[ch] = blend(f.mean, mean);
  f.batch_variance[ch] = blend(f.variance, unbiased);
  f.saved_mean[ch] = static_cast<T>(mean);
  f.saved_variance[ch] = static_cast<T>(variance);
  const double slope = static_cast<double>(f.scale[ch]) / sqrt(variance + f.epsilon);
  if (f.slope) {
    f.slope[ch] = static_cast<T>(slope);
    return;
  }
  // The centre is rounded, which c makes good.
  const T centre = static_cast<T>(mean);
  const double rest = (static_cast<double>(centre) - mean) * slope;
  lines[ch] = {T(0), static_cast<T>(slope), static_cast<T>(static_cast<double>(f.offset[ch]) + rest), centre};
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
__global__ void backward_channels_kernel(Layout l, Backward<T> f, const Sums* parts, Line<T>* lines) {
  if (cuda::grid_index() == 0) *f.zero_3 = *f.zero_4 = T{0};
  const std::int64_t ch = cuda::grid_index() / 32;
  if (ch >= l.channels) return;
  const Sums sums = total(l, parts, ch);
  if (threadIdx.x % 32 != 0) return;
  const auto n = static_cast<double>(l.count());
  const double v = static_cast<double>(f.variance[ch]) + f.epsilon;
  const double slope = static_cast<double>(f.scale[ch]) / sqrt(v);
  f.d_scale[ch] = static_cast<T>(sums.second / sqrt(v));
  f.d_offset[ch] = static_cast<T>(sums.first);
  Line<T> line{static_cast<T>(slope), T(0), T(0), f.mean[ch]};
  if (f.training && l.count() != 0) {
    line.b = static_cast<T>(-slope * sums.second / (n * v));
    line.c = static_cast<T>(-slope * sums.first / n);
  }
  lines[ch] = line;
}

template <class T, bool kBackward>
__device__ T result_of(const Line<T>& line, T x, T dy) {
  const T y = line.b * (x - line.centre) + line.c;
  return kBackward ? y + line.a * dy : y;
}

/// Channels last: a thread keeps its channels' lines.
template <class T, int kCount, bool kBackward>
__global__ void apply_last_kernel(const T* x, const T* dy, const Line<T>* lines, T* out, std::int64_t rows,
                                  std::int64_t packs) {
  using P = Pack<T, kCount>;
  const std::int64_t step = cuda::grid_size() / packs, first = cuda::grid_index() / packs;
  const std::int64_t channel = cuda::grid_index() - first * packs;
  if (first >= step) return;
  Line<T> line[kCount];
#pragma unroll
  for (int e = 0; e < kCount; ++e) line[e] = lines[channel * kCount + e];
#pragma unroll 4
  for (std::int64_t row = first; row < rows; row += step) {
    const std::int64_t i = row * packs + channel;
    const P value = reinterpret_cast<const P*>(x)[i];
    P gradient = value;
    if (kBackward) gradient = reinterpret_cast<const P*>(dy)[i];
    P result;
#pragma unroll
    for (int e = 0; e < kCount; ++e)
      result.at[e] = result_of<T, kBackward>(line[e], value.at[e], gradient.at[e]);
    reinterpret_cast<P*>(out)[i] = result;
  }
}

/// Runs of `inner` elements of a channel, in packs.
template <class T, int kCount, bool kBackward>
__global__ void apply_runs_kernel(const T* x, const T* dy, const Line<T>* lines, T* out, std::int64_t n,
                                  std::int64_t inner, std::int64_t channels) {
  using P = Pack<T, kCount>;
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    const std::int64_t channel = n < (1LL << 31)
                                     ? static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(inner) %
                                           static_cast<std::uint32_t>(channels)
                                     : i / inner % channels;
    const Line<T> line = lines[channel];
    const P value = reinterpret_cast<const P*>(x)[i];
    P gradient = value;
    if (kBackward) gradient = reinterpret_cast<const P*>(dy)[i];
    P result;
#pragma unroll
    for (int e = 0; e < kCount; ++e)
      result.at[e] = result_of<T, kBackward>(line, value.at[e], gradient.at[e]);
    reinterpret_cast<P*>(out)[i] = result;
  }
}

/// The scratch memory: lines by channel, then parts.
template <class T>
struct Scratch {
  Line<T>* lines;
  Sums* parts;
  Scratch(const Layout& l, void* memory)
      : lines(static_cast<Line<T>*>(memory)), parts(reinterpret_cast<Sums*>(lines + l.channels)) {}
  static std::size_t bytes(const Layout& l) {
    return static_cast<std::size_t>(l.channels) *
           (sizeof(Line<T>) + static_cast<std::size_t>(l.blocks) * sizeof(Sums));
  }
};

template <class X, class T, bool kBackward>
void sum(const Layout& l, const Scratch<T>& s, const KernelArgs& a, const X* x, const X* dy, const T* mean) {
  const dim3 grid(static_cast<unsigned>(l.tiles()), static_cast<unsigned>(l.blocks));
  constexpr int kMost = cuda::kPackOf<X>;
  cuda::launch(l.pack == kMost ? sum_kernel<X, T, kMost, kBackward> : sum_kernel<X, T, 1, kBackward>, grid,
               cuda::kThreads, 0, a.stream, l, x, dy, mean, s.parts);
}

template <class T, bool kBackward>
void apply(const Layout& l, const Scratch<T>& s, const KernelArgs& a, const T* x, const T* dy) {
  constexpr int kMost = cuda::kPackOf<T>;
  const std::int64_t n = l.elements();
  const auto* lines = static_cast<const Line<T>*>(s.lines);
  T* const out = a.out<T>(0);
  if (l.inner == 1) {
    // As many threads as a row has packs, at least.
    const std::int64_t packs = l.packs();
    const unsigned blocks = std::max(cuda::blocks_for(n / l.pack / 4),
                                     static_cast<unsigned>((packs + cuda::kThreads - 1) / cuda::kThreads));
    cuda::launch(
        l.pack == kMost ? apply_last_kernel<T, kMost, kBackward> : apply_last_kernel<T, 1, kBackward>, blocks,
        cuda::kThreads, 0, a.stream, x, dy, lines, out, l.outer, packs);
  } else if (l.inner % kMost == 0 && cuda::is_aligned16(x) && cuda::is_aligned16(out) &&
             (!kBackward || cuda::is_aligned16(dy))) {
    cuda::launch(apply_runs_kernel<T, kMost, kBackward>, cuda::blocks_for(n / kMost), cuda::kThreads, 0,
                 a.stream, x, dy, lines, out, n / kMost, l.inner / kMost, l.channels);
  } else {
    cuda::launch(apply_runs_kernel<T, 1, kBackward>, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, x, dy,
                 lines, out, n, l.inner, l.channels);
  }
}

/// The layout with packs of X, and the one for addresses that are not aligned to them.
template <class X, class T>
struct Layouts {
  Layout packed, single;
  Layouts(const PrepareContext& c, const Shape& x) : packed(c, x, cuda::kPackOf<X>), single(c, x, 1) {}
  std::size_t scratch_bytes() const { return std::max(Scratch<T>::bytes(packed), Scratch<T>::bytes(single)); }
  const Layout& of(std::initializer_list<const void*> pointers) const {
    return std::all_of(pointers.begin(), pointers.end(), cuda::is_aligned16) ? packed : single;
  }
};

/// A warp a channel.
unsigned channel_blocks(const Layout& l) {
  constexpr std::int64_t kWarps = cuda::kThreads / 32;
  return static_cast<unsigned>(std::max<std::int64_t>((l.channels + kWarps - 1) / kWarps, 1));
}

template <class T>
PreparedKernel forward(const PrepareContext& c) {
  const Layouts<T, T> layouts(c, c.inputs[0].shape);
  const double epsilon = c.attr("epsilon", 1e-4), factor = c.attr("exponential_avg_factor", 1.0);
  const bool training = c.attr("is_training", true);
  PreparedKernel kernel;
  kernel.scratch_bytes = layouts.scratch_bytes();
  kernel.run = [=](const KernelArgs& a) {
    const T* x = a.in<T>(0);
    const Layout& l = layouts.of({x, a.outputs[0]});
    const Scratch<T> s(l, a.scratch);
    if (training && l.elements() != 0) sum<T, T, false>(l, s, a, x, nullptr, nullptr);
    const Forward<T, T> f{.x = x,
                          .scale = a.in<T>(1),
                          .offset = a.in<T>(2),
                          .mean = a.in<T>(3),
                          .variance = a.in<T>(4),
                          .batch_mean = a.out<T>(1),
                          .batch_variance = a.out<T>(2),
                          .saved_mean = a.out<T>(3),
                          .saved_variance = a.out<T>(4),
                          .slope = nullptr,
                          .epsilon = epsilon,
                          .factor = factor,
                          .training = training};
    cuda::launch(forward_channels_kernel<T, T>, channel_blocks(l), cuda::kThreads, 0, a.stream, l, f,
                 static_cast<const Sums*>(s.parts), s.lines);
    if (l.elements() != 0) apply<T, false>(l, s, a, x, nullptr);
  };
  return kernel;
}

template <class X, class T>
PreparedKernel statistics(const PrepareContext& c) {
  const Layouts<X, T> layouts(c, c.inputs[0].shape);
  const double epsilon = c.attr("epsilon", 1e-4), factor = c.attr("exponential_avg_factor", 1.0);
  const bool training = c.attr("is_training", true);
  PreparedKernel kernel;
  kernel.scratch_bytes = layouts.scratch_bytes();
  kernel.run = [=](const KernelArgs& a) {
    const X* x = a.in<X>(0);
    const Layout& l = layouts.of({x});
    const Scratch<T> s(l, a.scratch);
    if (training && l.elements() != 0) sum<X, T, false>(l, s, a, x, nullptr, nullptr);
    const Forward<X, T> f{.x = x,
                          .scale = a.in<T>(1),
                          .offset = nullptr,
                          .mean = a.in<T>(2),
                          .variance = a.in<T>(3),
                          .batch_mean = a.out<T>(0),
                          .batch_variance = a.out<T>(1),
                          .saved_mean = a.out<T>(2),
                          .saved_variance = a.out<T>(3),
                          .slope = a.out<T>(4),
                          .epsilon = epsilon,
                          .factor = factor,
                          .training = training};
    cuda::launch(forward_channels_kernel<X, T>, channel_blocks(l), cuda::kThreads, 0, a.stream, l, f,
                 static_cast<const Sums*>(s.parts), s.lines);
  };
  return kernel;
}

template <class T>
PreparedKernel backward(const PrepareContext& c) {
  const Layouts<T, T> layouts(c, c.inputs[1].shape);
  const double epsilon = c.attr("epsilon", 1e-4);
  const bool training = c.attr("is_training", true);
  PreparedKernel kernel;
  kernel.scratch_bytes = layouts.scratch_bytes();
  kernel.run = [=](const KernelArgs& a) {
    const T *dy = a.in<T>(0), *x = a.in<T>(1);
    const Layout& l = layouts.of({x, dy, a.inputs[3], a.outputs[0]});
    const Scratch<T> s(l, a.scratch);
    if (l.channels != 0) sum<T, T, true>(l, s, a, x, dy, a.in<T>(3));
    const Backward<T> f{.scale = a.in<T>(2),
                        .mean = a.in<T>(3),
                        .variance = a.in<T>(4),
                        .d_scale = a.out<T>(1),
                        .d_offset = a.out<T>(2),
                        .zero_3 = a.out<T>(3),
                        .zero_4 = a.out<T>(4),
                        .epsilon = epsilon,
                        .training = training};
    cuda::launch(backward_channels_kernel<T>, channel_blocks(l), cuda::kThreads, 0, a.stream, l, f,
                 static_cast<const Sums*>(s.parts), s.lines);
    if (l.elements() != 0) apply<T, true>(l, s, a, x, dy);
  };
  return kernel;
}

}  // namespace

void register_fused_batch_norm_cuda(OpRegistry& registry) {
  cuda_takes_halves({"braid.BatchNormStatistics"});
  registry.add_cuda("braid.BatchNormStatistics", [](const PrepareContext& c) {
    switch (c.inputs[0].dtype) {
      case DType::Float16:
        return statistics<Float16, float>(c);
      case DType::BFloat16:
        return statistics<BFloat16, float>(c);
      case DType::Float32:
        return statistics<float, float>(c);
      default:
        return statistics<double, double>(c);
    }
  });
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
