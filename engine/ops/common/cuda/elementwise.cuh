// Elementwise CUDA kernels from the formulas that the CPU uses too. An op without broadcasting of its inputs
// runs over packs of 16 bytes; broadcasting ones over single elements with their position taken apart.
#pragma once

#include <utility>

#include "engine/ops/common/broadcast.h"
#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/launch.cuh"

namespace braid::cuda {

/// The arrays that are mapped.
template <class T, int kInputs>
struct Inputs {
  const T* at[kInputs];
};

/// y[i] = f(x0[i], x1[i], ...) for i < n. `f` is a device lambda or functor; all inputs have type T.
template <int kInputs, class T, class R, class F>
__global__ void map_kernel(Inputs<T, kInputs> x, R* y, std::int64_t n, F f) {
  for (std::int64_t i = grid_index(); i < n; i += grid_size()) {
    if constexpr (kInputs == 1)
      y[i] = f(x.at[0][i]);
    else if constexpr (kInputs == 2)
      y[i] = f(x.at[0][i], x.at[1][i]);
    else
      y[i] = f(x.at[0][i], x.at[1][i], x.at[2][i]);
  }
}

template <int kInputs, class T, class R, class F>
__global__ void map_packs_kernel(Inputs<T, kInputs> x, R* y, std::int64_t packs, F f) {
  constexpr int kCount = 16 / (sizeof(T) > sizeof(R) ? sizeof(T) : sizeof(R));
  using In = Pack<T, kCount>;
  using Out = Pack<R, kCount>;
  for (std::int64_t i = grid_index(); i < packs; i += grid_size()) {
    In in[kInputs];
#pragma unroll
    for (int k = 0; k < kInputs; ++k) in[k] = reinterpret_cast<const In*>(x.at[k])[i];
    Out out;
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      if constexpr (kInputs == 1)
        out.at[e] = f(in[0].at[e]);
      else if constexpr (kInputs == 2)
        out.at[e] = f(in[0].at[e], in[1].at[e]);
      else
        out.at[e] = f(in[0].at[e], in[1].at[e], in[2].at[e]);
    }
    reinterpret_cast<Out*>(y)[i] = out;
  }
}

/// Launches map over `n` elements. REQUIRES: y is one of the inputs, or overlaps none.
template <int kInputs, class T, class R, class F>
void map(StreamRef stream, Inputs<T, kInputs> x, R* y, std::int64_t n, F f) {
  if (n == 0) return;
  constexpr int kCount = 16 / (sizeof(T) > sizeof(R) ? sizeof(T) : sizeof(R));
  bool packed = n % kCount == 0 && is_aligned16(y);
  for (int k = 0; k < kInputs; ++k) packed = packed && is_aligned16(x.at[k]);
  if (packed)
    launch(map_packs_kernel<kInputs, T, R, F>, blocks_for(n / kCount), kThreads, 0, stream, x, y, n / kCount,
           f);
  else
    launch(map_kernel<kInputs, T, R, F>, blocks_for(n), kThreads, 0, stream, x, y, n, f);
}

/// The axes of a BroadcastPlan as a kernel's argument.
struct DeviceBroadcast {
  static constexpr int kMaxAxes = 8;
  static constexpr std::int64_t kNarrow = std::int64_t{1} << 32;
  int axes = 0;
  std::int64_t narrow = 0;           // elements below it are taken apart in 32 bits
  std::int64_t size[kMaxAxes];       // innermost first
  std::int64_t stride[3][kMaxAxes];  // by operand

  /// False when it has too many axes.
  bool from(const BroadcastPlan& plan) {
    axes = static_cast<int>(plan.axes().size());
    if (axes > kMaxAxes) return false;
    narrow = kNarrow;
    for (int a = 0; a < axes; ++a) {
      const auto& axis = plan.axes()[static_cast<std::size_t>(axes - 1 - a)];
      size[a] = axis.size;
      if (a + 1 < axes && axis.size >= kNarrow) narrow = 0;
      for (std::size_t k = 0; k < 3; ++k) stride[k][a] = axis.strides[k];
    }
    return true;
  }

  /// The positions of the first kOperands operands for output element i.
  template <int kOperands>
  __device__ void locate(std::int64_t i, std::int64_t (&at)[kOperands]) const {
    for (int k = 0; k < kOperands; ++k) at[k] = 0;
    // Divisions of 32 bits where they do: those of 64 are many instructions.
    if (i < narrow) {
      auto rest = static_cast<std::uint32_t>(i);
      for (int a = 0; a < axes; ++a) {
        const auto length = static_cast<std::uint32_t>(size[a]);
        const std::uint32_t next = a + 1 < axes ? rest / length : 0;
        const std::int64_t index = rest - next * length;
        for (int k = 0; k < kOperands; ++k) at[k] += index * stride[k][a];
        rest = next;
      }
    } else {
      for (int a = 0; a < axes; ++a) {
        const std::int64_t next = a + 1 < axes ? i / size[a] : 0;
        const std::int64_t index = i - next * size[a];
        for (int k = 0; k < kOperands; ++k) at[k] += index * stride[k][a];
        i = next;
      }
    }
  }
};

template <class T, class R, class F>
__global__ void broadcast2_kernel(const T* a, const T* b, R* y, std::int64_t n, DeviceBroadcast plan, F f) {
  for (std::int64_t i = grid_index(); i < n; i += grid_size()) {
    std::int64_t at[2];
    plan.locate(i, at);
    y[i] = f(a[at[0]], b[at[1]]);
  }
}

/// Where packs of two operands that broadcast begin. The innermost axis is one of packs.
struct PackBroadcast {
  static constexpr int kMaxAxes = DeviceBroadcast::kMaxAxes;
  int axes = 0;
  bool joined[2];                    // along the innermost axis: a pack, or one number
  Divider by_size[kMaxAxes];         // innermost first
  std::int64_t stride[2][kMaxAxes];  // in elements

  /// False where packs of `count` do not do.
  bool from(const BroadcastPlan& plan, int count) {
    axes = static_cast<int>(plan.axes().size());
    if (axes > kMaxAxes || plan.elements() / count >= kDividerLimit || plan.axes().back().size % count != 0)
      return false;
    for (int a = 0; a < axes; ++a) {
      const auto& axis = plan.axes()[static_cast<std::size_t>(axes - 1 - a)];
      by_size[a] = Divider(a == 0 ? axis.size / count : axis.size);
      for (int k = 0; k < 2; ++k) {
        const std::int64_t step = axis.strides[static_cast<std::size_t>(k)];
        if (a == 0) joined[k] = step == 1;
        stride[k][a] = a == 0 ? step * count : step;
        if (joined[k] && stride[k][a] % count != 0) return false;
      }
    }
    return true;
  }

  __device__ void locate(std::uint32_t i, std::int64_t (&at)[2]) const {
    at[0] = at[1] = 0;
#pragma unroll
    for (int a = 0; a < kMaxAxes; ++a) {
      if (a >= axes) break;
      const std::uint32_t next = a + 1 < axes ? by_size[a].quotient(i) : 0;
      const std::uint32_t index = i - next * by_size[a].divisor();
      for (int k = 0; k < 2; ++k) at[k] += index * stride[k][a];
      i = next;
    }
  }
};

template <class T, int kCount>
__device__ Pack<T, kCount> load_pack(const T* from, bool joined) {
  if (joined) return *reinterpret_cast<const Pack<T, kCount>*>(from);
  Pack<T, kCount> pack;
#pragma unroll
  for (int e = 0; e < kCount; ++e) pack.at[e] = *from;
  return pack;
}

template <int kCount, class T, class R, class F>
__global__ void broadcast2_packs_kernel(const T* a, const T* b, R* y, std::int64_t packs,
                                        const __grid_constant__ PackBroadcast plan, F f) {
  for (std::int64_t i = grid_index(); i < packs; i += grid_size()) {
    std::int64_t at[2];
    plan.locate(static_cast<std::uint32_t>(i), at);
    const auto x = load_pack<T, kCount>(a + at[0], plan.joined[0]);
    const auto z = load_pack<T, kCount>(b + at[1], plan.joined[1]);
    Pack<R, kCount> out;
#pragma unroll
    for (int e = 0; e < kCount; ++e) out.at[e] = f(x.at[e], z.at[e]);
    reinterpret_cast<Pack<R, kCount>*>(y)[i] = out;
  }
}

/// A kernel of inputs 0 and 1 that broadcast to output 0.
template <class T, class R, class F>
PreparedKernel prepare_broadcast2(const PrepareContext& c, const Shape& a, const Shape& b, F f) {
  const Shape& out = c.outputs[0].shape;
  const std::int64_t n = out.elements();
  PreparedKernel kernel;
  if (a.elements() == n && b.elements() == n) {
    kernel.run = [n, f](const KernelArgs& args) {
      map<2, T, R>(args.stream, {args.in<T>(0), args.in<T>(1)}, args.out<R>(0), n, f);
    };
    return kernel;
  }
  constexpr int kCount = 16 / (sizeof(T) > sizeof(R) ? sizeof(T) : sizeof(R));
  const BroadcastPlan axes({&a, &b}, out);
  DeviceBroadcast plan;
  if (!plan.from(axes)) c.fail("broadcasts over too many axes");
  PackBroadcast packs;
  const bool may_pack = kCount > 1 && packs.from(axes, kCount);
  kernel.run = [n, f, plan, packs, may_pack](const KernelArgs& args) {
    if (n == 0) return;
    const T *x = args.in<T>(0), *z = args.in<T>(1);
    if (may_pack && is_aligned16(args.out<R>(0)) && (!packs.joined[0] || is_aligned16(x)) &&
        (!packs.joined[1] || is_aligned16(z)))
      launch(broadcast2_packs_kernel<kCount, T, R, F>, blocks_for(n / kCount), kThreads, 0, args.stream, x, z,
             args.out<R>(0), n / kCount, packs, f);
    else
      launch(broadcast2_kernel<T, R, F>, blocks_for(n), kThreads, 0, args.stream, x, z, args.out<R>(0), n,
             plan, f);
  };
  return kernel;
}

}  // namespace braid::cuda
