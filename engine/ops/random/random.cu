// CUDA kernels of the random ops: a thread a Philox block. The exchanges of RandomShuffle follow one another,
// so one thread does them in shared memory; more rows than fit there are shuffled by the CPU.
#include <cmath>

#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/random.cuh"
#include "engine/ops/common/cuda/unit.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/state/initial_rows.h"

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

constexpr std::int64_t kMostShuffled = 16384;
constexpr int kShuffleThreads = 1024;

/// from[i]: the row of x that row i of the output is. `from` also holds each row's partner before that.
/// Launched as one block.
__global__ void __launch_bounds__(kShuffleThreads)
    shuffle_kernel(std::uint16_t* from, int rows, cuda::DeviceRandomKey key, const StepParams* params) {
  __shared__ std::uint16_t order[kMostShuffled];
  const std::uint64_t stream = key.at(*params);
  for (int i = static_cast<int>(threadIdx.x); i < rows; i += kShuffleThreads) {
    order[i] = static_cast<std::uint16_t>(i);
    // The 64 bits of elements 2i and 2i + 1, scaled to [0, i].
    const auto bits = cuda::random_bits(stream, static_cast<std::uint64_t>(i) / 2);
    const int first = i % 2 * 2;
    const std::uint64_t r =
        std::uint64_t{first == 0 ? bits.at[0] : bits.at[2]} << 32 | (first == 0 ? bits.at[1] : bits.at[3]);
    from[i] = static_cast<std::uint16_t>(__umul64hi(r, static_cast<std::uint64_t>(i) + 1));
  }
  __syncthreads();
  if (threadIdx.x == 0) {
#pragma unroll 8
    for (int i = rows - 1; i > 0; --i) {
      const int other = from[i];
      const std::uint16_t mine = order[i];
      order[i] = order[other];
      order[other] = mine;
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < rows; i += kShuffleThreads) from[i] = order[i];
}

template <class Unit>
__global__ void take_rows_kernel(const Unit* x, const std::uint16_t* from, Unit* y, std::int64_t units,
                                 std::int64_t width, cuda::Divider by_width) {
  for (std::int64_t i = cuda::grid_index(); i < units; i += cuda::grid_size()) {
    const std::int64_t row =
        units < cuda::kDividerLimit ? by_width.quotient(static_cast<std::uint32_t>(i)) : i / width;
    y[i] = x[from[row] * width + (i - row * width)];
  }
}

PreparedKernel prepare_shuffle(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const std::int64_t rows = shape.rank() == 0 ? 1 : shape[0];
  const std::int64_t row_bytes =
      rows == 0 ? 0 : shape.elements() / rows * static_cast<std::int64_t>(dtype_size(c.inputs[0].dtype));
  PreparedKernel kernel;
  kernel.scratch_bytes = static_cast<std::size_t>(rows) * sizeof(std::uint16_t);
  kernel.run = [=, key = cuda::DeviceRandomKey(RandomKey(c.node.attrs, c.node.name))](const KernelArgs& a) {
    if (row_bytes == 0) return;
    auto* from = static_cast<std::uint16_t*>(a.scratch);
    cuda::launch(shuffle_kernel, 1, kShuffleThreads, 0, a.stream, from, static_cast<int>(rows), key,
                 a.params);
    const auto alignment = static_cast<std::uint64_t>(row_bytes) |
                           reinterpret_cast<std::uintptr_t>(a.inputs[0]) |
                           reinterpret_cast<std::uintptr_t>(a.outputs[0]);
    cuda::with_row_unit(alignment, [&]<class Unit>() {
      const std::int64_t width = row_bytes / static_cast<std::int64_t>(sizeof(Unit));
      cuda::launch(take_rows_kernel<Unit>, cuda::blocks_for(rows * width), cuda::kThreads, 0, a.stream,
                   a.in<Unit>(0), from, a.out<Unit>(0), rows * width, width,
                   cuda::Divider(width < cuda::kDividerLimit ? width : 1));
    });
  };
  return kernel;
}

bool supports_shuffle(const Node&, std::span<const OutputInfo> inputs) {
  const Shape& shape = inputs[0].shape;
  return dtype_size(inputs[0].dtype) != 0 && (shape.rank() == 0 || shape[0] <= kMostShuffled);
}

/// An element of a table, as base/init.cc makes it of its random bits. `last`: below the end of uniforms.
struct InitialNumber {
  InitSpec spec;
  float last;

  __device__ float operator()(std::uint32_t bits) const {
    const float a = spec.a, b = spec.b;
    switch (spec.kind) {
      case InitKind::Zeros:
        return 0;
      case InitKind::Constant:
        return a;
      case InitKind::Uniform: {
        const float x = a + (b - a) * random::uniform01(bits);
        return x < last ? x : last;
      }
      case InitKind::Normal:
        return a + b * Quantile{0, 1}(bits);
      case InitKind::TruncatedNormal:
        return a + b * Quantile{random::kBelowMinus2, 1 - 2 * random::kBelowMinus2}(bits);
    }
    return 0;
  }
};

/// kPack elements of a row at a time, which are of one block of the stream.
template <int kPack>
__global__ void initial_rows_kernel(const __grid_constant__ InitialRows from, InitialNumber number,
                                    float* out) {
  using Elements = cuda::Pack<float, kPack>;
  const bool is_drawn = from.spec.kind > InitKind::Constant;
  const std::int64_t packs = from.width / kPack, n = from.rows * packs;
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    const std::int64_t row = from.rows == 1 ? 0 : i / packs, column = (i - row * packs) * kPack;
    Elements made;
    const std::uint64_t element = is_drawn ? from.first_of(row) + static_cast<std::uint64_t>(column) : 0;
    const auto bits =
        is_drawn ? cuda::random_bits(from.key.value, element / 4) : cuda::Pack<std::uint32_t, 4>{};
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      std::uint32_t own = bits.at[k];
      if constexpr (kPack == 1) own = bits.at[element % 4];
      made.at[k] = number(own);
    }
    *reinterpret_cast<Elements*>(out + i * kPack) = made;
  }
}

}  // namespace

void fill_initial_rows(const InitialRows& from, float* out, StreamRef stream) {
  if (from.elements() == 0) return;
  const float a = from.spec.a, b = from.spec.b;
  const InitialNumber number{from.spec, a < b ? std::nextafter(b, a) : a};
  const bool packed =
      from.width % 4 == 0 && from.dim % 4 == 0 && from.column % 4 == 0 && cuda::is_aligned16(out);
  if (packed)
    cuda::launch(initial_rows_kernel<4>, cuda::blocks_for(from.elements() / 4), cuda::kThreads, 0, stream,
                 from, number, out);
  else
    cuda::launch(initial_rows_kernel<1>, cuda::blocks_for(from.elements()), cuda::kThreads, 0, stream, from,
                 number, out);
}

void register_random_cuda(OpRegistry& registry) {
  registry.add_cuda("RandomUniform", [](const PrepareContext& c) { return prepare_float(c, Uniform{}); });
  registry.add_cuda("RandomStandardNormal", [](const PrepareContext& c) {
    return prepare_float(c, Quantile{0, 1});
  });
  registry.add_cuda("TruncatedNormal", [](const PrepareContext& c) {
    return prepare_float(c, Quantile{random::kBelowMinus2, 1 - 2 * random::kBelowMinus2});
  });
  registry.add_cuda("RandomUniformInt", prepare_int);
  registry.add_cuda("RandomShuffle", prepare_shuffle, supports_shuffle);
}

}  // namespace braid
