// CUDA kernels of the random ops: a thread a Philox block. RandomShuffle, whose exchanges follow one another,
// stays on the CPU.
#include "engine/ops/common/cuda/random.cuh"
#include "engine/ops/common/dispatch.h"

namespace braid {
namespace {

struct Uniform {
  __device__ float operator()(std::uint32_t bits) const { return random::uniform01(bits); }
};
/// The quantile of low + width * uniform.
struct Quantile {
  double low, width;
  __device__ float operator()(std::uint32_t bits) const {
    return static_cast<float>(random::quantile(low + width * random::cell_middle(bits)));
  }
};

template <class F>
__global__ void random_kernel(float* out, std::int64_t n, cuda::DeviceRandomKey key, const StepParams* params,
                              F f) {
  const std::uint64_t stream = key.at(*params);
  for (std::int64_t block = cuda::grid_index(); block * 4 < n; block += cuda::grid_size()) {
    const auto bits = cuda::random_bits(stream, static_cast<std::uint64_t>(block));
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (block * 4 + k < n) out[block * 4 + k] = f(bits.at[k]);
  }
}

template <class F>
PreparedKernel prepare_float(const PrepareContext& c, F f) {
  const std::int64_t n = c.outputs[0].shape.elements();
  const cuda::DeviceRandomKey key(RandomKey(c.node.attrs, c.node.name));
  PreparedKernel kernel;
  kernel.run = [n, key, f](const KernelArgs& a) {
    if (n != 0)
      cuda::launch(random_kernel<F>, cuda::blocks_for((n + 3) / 4), cuda::kThreads, 0, a.stream,
                   a.out<float>(0), n, key, a.params, f);
  };
  return kernel;
}

/// low + floor(r * range / 2^64) with r of 64 random bits, those of elements 2i and 2i + 1. An empty range is
/// reported as minval out of [.., maxval).
template <class T>
__global__ void random_int_kernel(const T* low, const T* high, T* out, std::int64_t n,
                                  cuda::DeviceRandomKey key, const StepParams* params, StepStatus* status,
                                  int op) {
  const T first = *low, last = *high;
  if (first >= last) {
    if (cuda::grid_index() == 0) cuda::report(status, op, StatusCode::IndexOutOfRange, first, last);
    return;
  }
  const std::uint64_t range = static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(first);
  const std::uint64_t stream = key.at(*params);
  for (std::int64_t block = cuda::grid_index(); block * 2 < n; block += cuda::grid_size()) {
    const auto bits = cuda::random_bits(stream, static_cast<std::uint64_t>(block));
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const std::uint64_t r = std::uint64_t{bits.at[2 * k]} << 32 | bits.at[2 * k + 1];
      if (block * 2 + k < n)
        out[block * 2 + k] = static_cast<T>(static_cast<std::uint64_t>(first) + __umul64hi(r, range));
    }
  }
}

PreparedKernel prepare_int(const PrepareContext& c) {
  const std::int64_t n = c.outputs[0].shape.elements();
  const cuda::DeviceRandomKey key(RandomKey(c.node.attrs, c.node.name));
  return with_index("RandomUniformInt", c.outputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [n, key](const KernelArgs& a) {
      if (n != 0)
        cuda::launch(random_int_kernel<T>, cuda::blocks_for((n + 1) / 2), cuda::kThreads, 0, a.stream,
                     a.in<T>(1), a.in<T>(2), a.out<T>(0), n, key, a.params, a.status, a.op);
    };
    return kernel;
  });
}

}  // namespace

void register_random_cuda(OpRegistry& registry) {
  registry.add_cuda("RandomUniform", [](const PrepareContext& c) { return prepare_float(c, Uniform{}); });
  registry.add_cuda("RandomStandardNormal", [](const PrepareContext& c) {
    return prepare_float(c, Quantile{0, 1});
  });
  registry.add_cuda("TruncatedNormal", [](const PrepareContext& c) {
    return prepare_float(c, Quantile{random::kBelowMinus2, 1 - 2 * random::kBelowMinus2});
  });
  registry.add_cuda("RandomUniformInt", prepare_int);
}

}  // namespace braid
