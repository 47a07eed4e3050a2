// What CPU kernels are made of: vector clones of loops, the fixed grain of parallel loops, and a prepared
// kernel around a loop. Borders of blocks depend on shapes only, never on the pool's width, so the bits do
// not either.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "engine/ir/op.h"

// Put in front of a function with a hot loop: it is compiled for AVX-512, AVX2 and the baseline, and the
// loader picks one. What the loop calls must be inlined into it (BRAID_INLINE), or it stays at the baseline.
// Loops keep their bits on every choice because the kernel files are compiled with -ffp-contract=off. Off
// under sanitizers, whose runtimes are not up yet when the loader resolves.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(BRAID_SANITIZED) && !defined(__CUDACC__)
#ifdef BRAID_VECTORS  // of this machine's processor alone (BRAID_NATIVE)
#define BRAID_VECTOR_CLONES __attribute__((target(BRAID_VECTORS)))
#else
#define BRAID_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#else
#define BRAID_VECTOR_CLONES
#endif
#ifdef __CUDACC__
#define BRAID_INLINE __host__ __device__ __forceinline__  // formulas are shared with CUDA kernels
#else
#define BRAID_INLINE __attribute__((always_inline)) inline
#endif

namespace braid {

template <class T, bool kIntegral = std::is_integral_v<T> && !std::is_same_v<T, bool>>
struct Wrapping {
  using type = T;
};
template <class T>
struct Wrapping<T, true> {
  using type = std::make_unsigned_t<T>;
};
/// The type to calculate in, so that integers wrap instead of overflowing.
template <class T>
using wrapping_t = typename Wrapping<T>::type;

/// Elements of an elementwise block: 128 KiB of float32, some microseconds at memory speed.
inline constexpr std::int64_t kElementGrain = 32768;

/// Rows a block when a row costs `row_elements` element operations: whole rows, about kElementGrain elements.
inline std::int64_t row_grain(std::int64_t row_elements) {
  return row_elements >= kElementGrain ? 1 : kElementGrain / (row_elements > 0 ? row_elements : 1);
}

/// A kernel that runs body(args, begin, end) over blocks of [0, count). The body is copied into the kernel.
template <class Body>
PreparedKernel parallel_kernel(const PrepareContext& c, std::int64_t count, std::int64_t grain, Body body) {
  PreparedKernel kernel;
  kernel.run = [pool = &c.pool, count, grain, body = std::move(body)](const KernelArgs& args) {
    pool->parallel_range(count, grain, [&](std::int64_t begin, std::int64_t end) { body(args, begin, end); });
  };
  return kernel;
}

/// A kernel that runs body(args) on the stream's thread.
template <class Body>
PreparedKernel serial_kernel(Body body) {
  PreparedKernel kernel;
  kernel.run = std::move(body);
  return kernel;
}

}  // namespace braid
