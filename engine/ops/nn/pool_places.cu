// CUDA kernels of braid.MaxPoolPlaces and its gradient (pool_places.cc). A thread takes neighbouring channels
// of a pixel, 16 bytes where addresses and channels allow it. Of windows of images that do not overlap a
// thread writes all elements of dx; else an element of dx adds what its windows give, in row-major order.
#include <limits>

#include "engine/ops/common/halves.h"
#include "engine/ops/nn/pooling.cuh"

namespace braid {
namespace {

using namespace cuda_pooling;

/// Planes of volumes; images have one.
template <class I>
struct Planes {
  Side d;
  explicit Planes(const Pooling& p) : d(p.window.d, p.in_d, p.out_d) {}
};

/// Windows of kH x kW of images, so that their loads are under way together; 0: of any size, also of volumes.
template <class T, int kCount, int kH, int kW, class I>
__global__ void forward_kernel(const __grid_constant__ Geometry<I> g,
                               const __grid_constant__ Planes<I> planes, const Pack<T, kCount>* x,
                               Pack<T, kCount>* y, Pack<std::uint8_t, kCount>* places, I n) {
  for (I i = static_cast<I>(cuda::grid_index()); i < n; i += static_cast<I>(cuda::grid_size())) {
    const Place<I> at(i, g.h.out, g.w.out, g.channels);
    using N = Number<T>;
    N best[kCount];
    Pack<std::uint8_t, kCount> taken;
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      best[e] = std::numeric_limits<N>::lowest();
      taken.at[e] = 0;
    }
    const auto take = [&](const Pack<T, kCount>& tap, int number) {
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        const N value = as_number(tap.at[e]);
        if (value > best[e] || (taken.at[e] == 0 && value == best[e])) {
          best[e] = value;
          taken.at[e] = static_cast<std::uint8_t>(number);
        }
      }
    };
    const int top = g.h.start(at.row), left = g.w.start(at.column);
    if constexpr (kH > 0) {
      Pack<T, kCount> taps[kH * kW];
      bool inside[kH * kW];
#pragma unroll
      for (int t = 0; t < kH * kW; ++t) {
        const int r = top + t / kW, s = left + t % kW;
        inside[t] = r >= 0 && r < g.h.in && s >= 0 && s < g.w.in;
        if (inside[t]) taps[t] = x[input_at(g, at.image, r, s, at.channel)];
      }
#pragma unroll
      for (int t = 0; t < kH * kW; ++t)
        if (inside[t]) take(taps[t], t + 1);
    } else {
      const I out_planes = static_cast<I>(planes.d.out), image = at.image / out_planes;
      const int plane = static_cast<int>(at.image - image * out_planes), front = planes.d.start(plane);
      for (int z = planes.d.first(plane); z < planes.d.end(plane); ++z)
        for (int r = g.h.first(at.row); r < g.h.end(at.row); ++r)
          for (int s = g.w.first(at.column); s < g.w.end(at.column); ++s)
            take(x[input_at(g, image * static_cast<I>(planes.d.in) + static_cast<I>(z), r, s, at.channel)],
                 ((z - front) * g.h.kernel + r - top) * g.w.kernel + s - left + 1);
    }
    Pack<T, kCount> rounded;
#pragma unroll
    for (int e = 0; e < kCount; ++e) rounded.at[e] = static_cast<T>(best[e]);
    y[i] = rounded;
    if (places) places[i] = taken;
  }
}

/// dx of windows of images that do not overlap, a thread a cell: the stride that begins with a window, or
/// lies behind the last one. kH x kW: of the window and of the stride; 0: of any sizes.
template <class T, int kCount, int kH, int kW, class I>
__global__ void cells_kernel(const __grid_constant__ Geometry<I> g, const Pack<std::uint8_t, kCount>* places,
                             const Pack<T, kCount>* dy, Pack<T, kCount>* dx, I n) {
  const int rows = kH > 0 ? kH : g.h.stride, columns = kW > 0 ? kW : g.w.stride;
  for (I i = static_cast<I>(cuda::grid_index()); i < n; i += static_cast<I>(cuda::grid_size())) {
    const Place<I> at(i, g.h.cells, g.w.cells, g.channels);
    Pack<std::uint8_t, kCount> taken;
    Pack<T, kCount> given;
#pragma unroll
    for (int e = 0; e < kCount; ++e) taken.at[e] = 0;
    if (at.row < g.h.out && at.column < g.w.out) {
      const I out = output_at(g, at.image, at.row, at.column, at.channel);
      taken = places[out];
      given = dy[out];
    }
    const int top = g.h.start(at.row), left = g.w.start(at.column);
#pragma unroll
    for (int a = 0; a < rows; ++a)
#pragma unroll
      for (int b = 0; b < columns; ++b) {
        const int r = top + a, s = left + b;
        if (r < 0 || r >= g.h.in || s < 0 || s >= g.w.in) continue;
        const int own = a < g.h.kernel && b < g.w.kernel ? a * g.w.kernel + b + 1 : 256;
        Pack<T, kCount> part;
#pragma unroll
        for (int e = 0; e < kCount; ++e) part.at[e] = taken.at[e] == own ? given.at[e] : T(0);
        dx[input_at(g, at.image, r, s, at.channel)] = part;
      }
  }
}

/// dx of windows of images of kK x kK with strides of kS, of which few hold an element: their loads are under
/// way together.
template <class T, int kCount, int kK, int kS, class I>
__global__ void overlaps_kernel(const __grid_constant__ Geometry<I> g,
                                const Pack<std::uint8_t, kCount>* places, const Pack<T, kCount>* dy,
                                Pack<T, kCount>* dx, I n) {
  constexpr int kWindows = (kK + kS - 1) / kS;  // of a direction that hold an element, at most
  const auto first_of = [](int padded) { return padded < kK ? 0 : (padded - kK) / kS + 1; };
  for (I i = static_cast<I>(cuda::grid_index()); i < n; i += static_cast<I>(cuda::grid_size())) {
    const Place<I> at(i, g.h.in, g.w.in, g.channels);
    const int y = at.row + g.h.pad, x = at.column + g.w.pad;
    const int r0 = first_of(y), r1 = min(y / kS + 1, g.h.out), s0 = first_of(x),
              s1 = min(x / kS + 1, g.w.out);
    Pack<std::uint8_t, kCount> taken[kWindows * kWindows];
    Pack<T, kCount> given[kWindows * kWindows];
#pragma unroll
    for (int t = 0; t < kWindows * kWindows; ++t) {
      const int r = r0 + t / kWindows, s = s0 + t % kWindows;
      if (r >= r1 || s >= s1) continue;
      const I out = output_at(g, at.image, r, s, at.channel);
      taken[t] = places[out];
      given[t] = dy[out];
    }
    Number<T> sum[kCount] = {};
#pragma unroll
    for (int t = 0; t < kWindows * kWindows; ++t) {
      const int r = r0 + t / kWindows, s = s0 + t % kWindows;
      if (r >= r1 || s >= s1) continue;
      const int own = (y - r * kS) * kK + x - s * kS + 1;
#pragma unroll
      for (int e = 0; e < kCount; ++e)
        if (static_cast<int>(taken[t].at[e]) == own) sum[e] += as_number(given[t].at[e]);
    }
    Pack<T, kCount> rounded;
#pragma unroll
    for (int e = 0; e < kCount; ++e) rounded.at[e] = static_cast<T>(sum[e]);
    dx[i] = rounded;
  }
}

/// dx by what the windows that hold an element give to it.
template <class T, int kCount, bool kVolumes, class I>
__global__ void gather_kernel(const __grid_constant__ Geometry<I> g, const __grid_constant__ Planes<I> planes,
                              const Pack<std::uint8_t, kCount>* places, const Pack<T, kCount>* dy,
                              Pack<T, kCount>* dx, I n) {
  for (I i = static_cast<I>(cuda::grid_index()); i < n; i += static_cast<I>(cuda::grid_size())) {
    const Place<I> at(i, g.h.in, g.w.in, g.channels);
    Number<T> sum[kCount] = {};
    const auto add = [&](I out_image, int before) {
      for (int r = g.h.first_window(at.row); r < g.h.end_window(at.row); ++r)
        for (int s = g.w.first_window(at.column); s < g.w.end_window(at.column); ++s) {
          const I out = output_at(g, out_image, r, s, at.channel);
          const Pack<std::uint8_t, kCount> taken = places[out];
          const Pack<T, kCount> given = dy[out];
          const int own = (before + at.row - g.h.start(r)) * g.w.kernel + at.column - g.w.start(s) + 1;
#pragma unroll
          for (int e = 0; e < kCount; ++e)
            if (static_cast<int>(taken.at[e]) == own) sum[e] += as_number(given.at[e]);
        }
    };
    if constexpr (kVolumes) {
      const I in_planes = static_cast<I>(planes.d.in), image = at.image / in_planes;
      const int plane = static_cast<int>(at.image - image * in_planes);
      for (int z = planes.d.first_window(plane); z < planes.d.end_window(plane); ++z)
        add(image * static_cast<I>(planes.d.out) + static_cast<I>(z),
            (plane - planes.d.start(z)) * g.h.kernel);
    } else {
      add(at.image, 0);
    }
    Pack<T, kCount> rounded;
#pragma unroll
    for (int e = 0; e < kCount; ++e) rounded.at[e] = static_cast<T>(sum[e]);
    dx[i] = rounded;
  }
}

bool is_of_volumes(const Pooling& p) { return p.in_d != 1 || p.out_d != 1 || p.window.d.kernel != 1; }

template <class T>
PreparedKernel forward(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [p = prepared_pooling(c, c.inputs[0].shape), n = c.outputs[0].shape.elements(),
                keeps = c.attr<bool>("keeps", true)](const KernelArgs& a) {
    if (n == 0) return;
    std::uint8_t* places = keeps ? a.out<std::uint8_t>(1) : nullptr;
    const bool aligned =
        cuda::is_aligned16(a.inputs[0]) && cuda::is_aligned16(a.outputs[0]) && cuda::is_aligned16(places);
    dispatch<T>(p, aligned, [&]<class I, class Count>(I, Count) {
      constexpr int kCount = Count::value;
      const Geometry<I> g(p, kCount);
      const auto launch = [&](auto run) {
        cuda::launch(run, cuda::blocks_for(n / kCount), cuda::kThreads, 0, a.stream, g, Planes<I>(p),
                     as_packs<Pack<T, kCount>>(a.in<T>(0)), as_packs<Pack<T, kCount>>(a.out<T>(0)),
                     as_packs<Pack<std::uint8_t, kCount>>(places), static_cast<I>(n / kCount));
      };
      if (is_of_volumes(p))
        launch(forward_kernel<T, kCount, 0, 0, I>);
      else if (g.h.kernel == 2 && g.w.kernel == 2)
        launch(forward_kernel<T, kCount, 2, 2, I>);
      else if (g.h.kernel == 3 && g.w.kernel == 3)
        launch(forward_kernel<T, kCount, 3, 3, I>);
      else
        launch(forward_kernel<T, kCount, 0, 0, I>);
    });
  };
  return kernel;
}

template <class T, int kCount, class I>
void run_cells(const Pooling& p, const KernelArgs& a) {
  const Geometry<I> g(p, kCount);
  const std::int64_t n = p.images * g.h.cells * g.w.cells * (p.channels / kCount);
  const auto launch = [&](auto run) {
    cuda::launch(run, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, g,
                 as_packs<Pack<std::uint8_t, kCount>>(a.in<std::uint8_t>(0)),
                 as_packs<Pack<T, kCount>>(a.in<T>(1)), as_packs<Pack<T, kCount>>(a.out<T>(0)),
                 static_cast<I>(n));
  };
  if (g.h.is(2, 2) && g.w.is(2, 2))
    launch(cells_kernel<T, kCount, 2, 2, I>);
  else
    launch(cells_kernel<T, kCount, 0, 0, I>);
}

template <class T>
PreparedKernel backward(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [p = prepared_pooling(c, c.outputs[0].shape),
                n = c.outputs[0].shape.elements()](const KernelArgs& a) {
    if (n == 0) return;
    const bool aligned = cuda::is_aligned16(a.inputs[0]) && cuda::is_aligned16(a.inputs[1]) &&
                         cuda::is_aligned16(a.outputs[0]);
    dispatch<T>(p, aligned, [&]<class I, class Count>(I, Count) {
      constexpr int kCount = Count::value;
      const Geometry<I> g(p, kCount);
      // A cell of a stride that is long would be the work of one thread.
      constexpr int kMostOfThread = 16;
      const bool volumes = is_of_volumes(p);
      if (!volumes && !g.h.overlaps() && !g.w.overlaps() && g.h.stride <= kMostOfThread / g.w.stride)
        return run_cells<T, kCount, I>(p, a);
      if (!volumes && g.h.is(3, 2) && g.w.is(3, 2))
        return cuda::launch(overlaps_kernel<T, kCount, 3, 2, I>, cuda::blocks_for(n / kCount), cuda::kThreads,
                            0, a.stream, g, as_packs<Pack<std::uint8_t, kCount>>(a.in<std::uint8_t>(0)),
                            as_packs<Pack<T, kCount>>(a.in<T>(1)), as_packs<Pack<T, kCount>>(a.out<T>(0)),
                            static_cast<I>(n / kCount));
      cuda::launch(volumes ? gather_kernel<T, kCount, true, I> : gather_kernel<T, kCount, false, I>,
                   cuda::blocks_for(n / kCount), cuda::kThreads, 0, a.stream, g, Planes<I>(p),
                   as_packs<Pack<std::uint8_t, kCount>>(a.in<std::uint8_t>(0)),
                   as_packs<Pack<T, kCount>>(a.in<T>(1)), as_packs<Pack<T, kCount>>(a.out<T>(0)),
                   static_cast<I>(n / kCount));
    });
  };
  return kernel;
}

}  // namespace

void register_pool_places_cuda(OpRegistry& registry) {
  cuda_takes_halves({"braid.MaxPoolPlaces", "braid.MaxPoolPlacesGrad", "braid.MaxPoolPlaces3D",
                     "braid.MaxPoolPlacesGrad3D"});
  for (const char* op : {"braid.MaxPoolPlaces", "braid.MaxPoolPlaces3D"})
    registry.add_cuda(op, [](const PrepareContext& c) {
      return of_type<true>(c.outputs[0].dtype, [&]<class T>(T) { return forward<T>(c); });
    });
  for (const char* op : {"braid.MaxPoolPlacesGrad", "braid.MaxPoolPlacesGrad3D"})
    registry.add_cuda(op, [](const PrepareContext& c) {
      return of_type<true>(c.outputs[0].dtype, [&]<class T>(T) { return backward<T>(c); });
    });
}

}  // namespace braid
