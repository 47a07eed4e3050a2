// CUDA kernels of MaxPool, AvgPool and their gradients (pooling.h). A thread takes neighbouring channels of a
// pixel, 16 bytes where addresses and channels allow it. Gradients:
//   maxima   which position each window's gradient goes to, into scratch memory; then an input element adds
//            those of its windows, in row-major order. Training has braid.MaxPoolPlaces instead.
//   means    an input element adds its windows' shares, in row-major order
// Means take halves, which are added as float32.
#include <limits>

#include "engine/ops/common/halves.h"
#include "engine/ops/nn/pooling.cuh"

namespace braid {
namespace {

using namespace cuda_pooling;

/// Windows of kH x kW, so that their loads are under way together; 0: of any size.
template <class T, int kCount, bool kMax, int kH, int kW, class I>
__global__ void forward_kernel(const __grid_constant__ Geometry<I> g, const Pack<T, kCount>* x,
                               Pack<T, kCount>* y, I n) {
  for (I i = static_cast<I>(cuda::grid_index()); i < n; i += static_cast<I>(cuda::grid_size())) {
    const Place<I> at(i, g.h.out, g.w.out, g.channels);
    using N = Number<T>;
    const N none = kMax ? std::numeric_limits<N>::lowest() : N(0);
    N result[kCount];
#pragma unroll
    for (int e = 0; e < kCount; ++e) result[e] = none;
    const auto take = [&](const Pack<T, kCount>& tap) {
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        const N value = as_number(tap.at[e]);
        if constexpr (kMax)
          result[e] = value > result[e] ? value : result[e];
        else
          result[e] += value;
      }
    };
    const int top = g.h.start(at.row), left = g.w.start(at.column);
    if constexpr (kH > 0) {
      Pack<T, kCount> taps[kH * kW];
#pragma unroll
      for (int t = 0; t < kH * kW; ++t) {
        const int r = top + t / kW, s = left + t % kW;
        if (r >= 0 && r < g.h.in && s >= 0 && s < g.w.in)
          taps[t] = x[input_at(g, at.image, r, s, at.channel)];
        else
#pragma unroll
          for (int e = 0; e < kCount; ++e) taps[t].at[e] = static_cast<T>(none);
      }
#pragma unroll
      for (int t = 0; t < kH * kW; ++t) take(taps[t]);
    } else {
      for (int r = g.h.first(at.row); r < g.h.end(at.row); ++r)
        for (int s = g.w.first(at.column); s < g.w.end(at.column); ++s)
          take(x[input_at(g, at.image, r, s, at.channel)]);
    }
    if constexpr (!kMax) {
      const N count =
          static_cast<N>((g.h.end(at.row) - g.h.first(at.row)) * (g.w.end(at.column) - g.w.first(at.column)));
#pragma unroll
      for (int e = 0; e < kCount; ++e) result[e] /= count;
    }
    Pack<T, kCount> rounded;
#pragma unroll
    for (int e = 0; e < kCount; ++e) rounded.at[e] = static_cast<T>(result[e]);
    y[i] = rounded;
  }
}

/// The tap, from 1 on, of each window that first holds its maximum; 0: none does.
template <class T, int kCount, class Tap, class I>
__global__ void taps_kernel(const __grid_constant__ Geometry<I> g, const Pack<T, kCount>* x,
                            const Pack<T, kCount>* y, Pack<Tap, kCount>* taps, I n) {
  for (I i = static_cast<I>(cuda::grid_index()); i < n; i += static_cast<I>(cuda::grid_size())) {
    const Place<I> at(i, g.h.out, g.w.out, g.channels);
    const Pack<T, kCount> top = y[i];
    Pack<Tap, kCount> found;
#pragma unroll
    for (int e = 0; e < kCount; ++e) found.at[e] = 0;
    for (int r = g.h.first(at.row); r < g.h.end(at.row); ++r)
      for (int s = g.w.first(at.column); s < g.w.end(at.column); ++s) {
        const Pack<T, kCount> tap = x[input_at(g, at.image, r, s, at.channel)];
        const int number = (r - g.h.start(at.row)) * g.w.kernel + s - g.w.start(at.column) + 1;
#pragma unroll
        for (int e = 0; e < kCount; ++e)
          if (found.at[e] == 0 && as_number(tap.at[e]) == as_number(top.at[e]))
            found.at[e] = static_cast<Tap>(number);
      }
    taps[i] = found;
  }
}

/// dx by what the windows that hold an element give to it; `taps` is not read for means.
template <class T, int kCount, bool kMax, class Tap, class I>
__global__ void gather_kernel(const __grid_constant__ Geometry<I> g, const Pack<Tap, kCount>* taps,
                              const Pack<T, kCount>* dy, Pack<T, kCount>* dx, I n) {
  for (I i = static_cast<I>(cuda::grid_index()); i < n; i += static_cast<I>(cuda::grid_size())) {
    const Place<I> at(i, g.h.in, g.w.in, g.channels);
    using N = Number<T>;
    N sum[kCount] = {};
    for (int r = g.h.first_window(at.row); r < g.h.end_window(at.row); ++r)
      for (int s = g.w.first_window(at.column); s < g.w.end_window(at.column); ++s) {
        const I out = output_at(g, at.image, r, s, at.channel);
        const Pack<T, kCount> given = dy[out];
        if constexpr (kMax) {
          const Pack<Tap, kCount> tap = taps[out];
          const int own = (at.row - g.h.start(r)) * g.w.kernel + at.column - g.w.start(s) + 1;
#pragma unroll
          for (int e = 0; e < kCount; ++e)
            if (static_cast<int>(tap.at[e]) == own) sum[e] += as_number(given.at[e]);
        } else {
          const N count = static_cast<N>((g.h.end(r) - g.h.first(r)) * (g.w.end(s) - g.w.first(s)));
#pragma unroll
          for (int e = 0; e < kCount; ++e) sum[e] += as_number(given.at[e]) / count;
        }
      }
    Pack<T, kCount> rounded;
#pragma unroll
    for (int e = 0; e < kCount; ++e) rounded.at[e] = static_cast<T>(sum[e]);
    dx[i] = rounded;
  }
}

template <class T, bool kMax>
PreparedKernel forward(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [p = prepared_pooling(c, c.inputs[0].shape),
                n = c.outputs[0].shape.elements()](const KernelArgs& a) {
    if (n == 0) return;
    const bool aligned = cuda::is_aligned16(a.inputs[0]) && cuda::is_aligned16(a.outputs[0]);
    dispatch<T>(p, aligned, [&]<class I, class Count>(I, Count) {
      constexpr int kCount = Count::value;
      const auto launch = [&](auto run) {
        cuda::launch(run, cuda::blocks_for(n / kCount), cuda::kThreads, 0, a.stream, Geometry<I>(p, kCount),
                     as_packs<Pack<T, kCount>>(a.in<T>(0)), as_packs<Pack<T, kCount>>(a.out<T>(0)),
                     static_cast<I>(n / kCount));
      };
      if (p.window.h.kernel == 2 && p.window.w.kernel == 2)
        launch(forward_kernel<T, kCount, kMax, 2, 2, I>);
      else if (p.window.h.kernel == 3 && p.window.w.kernel == 3)
        launch(forward_kernel<T, kCount, kMax, 3, 3, I>);
      else
        launch(forward_kernel<T, kCount, kMax, 0, 0, I>);
    });
  };
  return kernel;
}

/// The pooling of a gradient's node. `dy` is the input that holds the output's gradient.
Pooling pooling_of_gradient(const PrepareContext& c, int dy) {
  const Pooling p = prepared_pooling(c, c.outputs[0].shape);
  const Shape& shape = c.inputs[static_cast<std::size_t>(dy)].shape;
  if (shape.elements() != p.images * p.out_image())
    c.fail("the output's gradient has shape " + shape.to_string() + ", images of shape " +
           c.outputs[0].shape.to_string() + " do not give it");
  return p;
}

template <class T>
PreparedKernel average_backward(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [p = pooling_of_gradient(c, 1), n = c.outputs[0].shape.elements()](const KernelArgs& a) {
    if (n == 0) return;
    const bool aligned = cuda::is_aligned16(a.inputs[1]) && cuda::is_aligned16(a.outputs[0]);
    dispatch<T>(p, aligned, [&]<class I, class Count>(I, Count) {
      constexpr int kCount = Count::value;
      cuda::launch(gather_kernel<T, kCount, false, std::uint8_t, I>, cuda::blocks_for(n / kCount),
                   cuda::kThreads, 0, a.stream, Geometry<I>(p, kCount),
                   static_cast<const Pack<std::uint8_t, kCount>*>(nullptr),
                   as_packs<Pack<T, kCount>>(a.in<T>(1)), as_packs<Pack<T, kCount>>(a.out<T>(0)),
                   static_cast<I>(n / kCount));
    });
  };
  return kernel;
}

template <class T, class Tap>
void run_taps(const Pooling& p, const KernelArgs& a, bool aligned) {
  dispatch<T>(p, aligned, [&]<class I, class Count>(I, Count) {
    constexpr int kCount = Count::value;
    const Geometry<I> g(p, kCount);
    const std::int64_t in = p.images * p.in_image() / kCount, out = p.images * p.out_image() / kCount;
    auto* taps = static_cast<Pack<Tap, kCount>*>(a.scratch);
    cuda::launch(taps_kernel<T, kCount, Tap, I>, cuda::blocks_for(out), cuda::kThreads, 0, a.stream, g,
                 as_packs<Pack<T, kCount>>(a.in<T>(0)), as_packs<Pack<T, kCount>>(a.in<T>(1)), taps,
                 static_cast<I>(out));
    cuda::launch(gather_kernel<T, kCount, true, Tap, I>, cuda::blocks_for(in), cuda::kThreads, 0, a.stream, g,
                 static_cast<const Pack<Tap, kCount>*>(taps), as_packs<Pack<T, kCount>>(a.in<T>(2)),
                 as_packs<Pack<T, kCount>>(a.out<T>(0)), static_cast<I>(in));
  });
}

template <class T>
PreparedKernel max_backward(const PrepareContext& c) {
  const Pooling p = pooling_of_gradient(c, 2);
  const std::int64_t n = c.outputs[0].shape.elements(), windows = p.images * p.out_image();
  const bool few_taps = p.taps() < 256;
  PreparedKernel kernel;
  kernel.scratch_bytes = static_cast<std::size_t>(windows) * (few_taps ? 1 : 4);
  kernel.run = [p, n, few_taps](const KernelArgs& a) {
    if (n == 0) return;
    bool aligned = cuda::is_aligned16(a.outputs[0]);
    for (int i = 0; i < 3; ++i) aligned = aligned && cuda::is_aligned16(a.inputs[i]);
    few_taps ? run_taps<T, std::uint8_t>(p, a, aligned) : run_taps<T, std::uint32_t>(p, a, aligned);
  };
  return kernel;
}

}  // namespace

void register_pool2d_cuda(OpRegistry& registry) {
  cuda_takes_halves({"AvgPool", "AvgPoolGrad"});
  registry.add_cuda("MaxPool", [](const PrepareContext& c) {
    return of_type<false>(c.outputs[0].dtype, [&]<class T>(T) { return forward<T, true>(c); });
  });
  registry.add_cuda("AvgPool", [](const PrepareContext& c) {
    return of_type<true>(c.outputs[0].dtype, [&]<class T>(T) { return forward<T, false>(c); });
  });
  registry.add_cuda("MaxPoolGrad", [](const PrepareContext& c) {
    return of_type<false>(c.outputs[0].dtype, [&]<class T>(T) { return max_backward<T>(c); });
  });
  registry.add_cuda("AvgPoolGrad", [](const PrepareContext& c) {
    return of_type<true>(c.outputs[0].dtype, [&]<class T>(T) { return average_backward<T>(c); });
  });
}

}  // namespace braid
