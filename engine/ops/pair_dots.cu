// CUDA kernels of braid.PairDots and its gradient: a warp an example, a lane a vector. Each lane holds its
// vector in registers, and all others pass by in shared memory. The gradient is a product of the example's
// symmetric matrix of dy, zero where there is no pair, with its vectors.
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/pair_dots.h"

namespace braid {
namespace {

constexpr int kLanes = 32;
constexpr int kMostPairs = kLanes * (kLanes + 1) / 2;
constexpr int kPitch = kLanes + 1;  // of a matrix in shared memory, so that columns lie in different banks

/// The k-th pair is (at[k] / kLanes, at[k] % kLanes).
struct PairList {
  int count = 0;
  short at[kMostPairs] = {};
};

PairList pair_list(const PrepareContext& c, std::int64_t n) {
  PairList list;
  for (const std::int64_t pair : c.attr<std::vector<std::int64_t>>("pairs", {}))
    list.at[list.count++] = static_cast<short>(pair / n * kLanes + pair % n);
  return list;
}

template <int kWidth>
struct Vectors {
  static constexpr int kWarps = kWidth == 64 ? 2 : 4;
  static constexpr int kPacks = kWidth / 4;
  float4 at[kLanes * kPacks];

  __device__ void load(const float4* from, int n, int lane) {
    for (int t = lane; t < n * kPacks; t += kLanes) at[t] = from[t];
    __syncwarp();
  }
};

template <int kWidth>
__global__ void pair_dots(const float4* x, float* y, std::int64_t examples, int n,
                          const __grid_constant__ PairList pairs) {
  using V = Vectors<kWidth>;
  __shared__ V vectors[V::kWarps];
  __shared__ short place[kLanes * kLanes];  // of the pair (row, lane) among the results, or -1
  for (int t = threadIdx.x; t < kLanes * kLanes; t += blockDim.x) place[t] = -1;
  __syncthreads();
  for (int k = threadIdx.x; k < pairs.count; k += blockDim.x) place[pairs.at[k]] = static_cast<short>(k);
  __syncthreads();
  const int warp = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  V& mine = vectors[warp];
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * V::kWarps + warp; i < examples;
       i += static_cast<std::int64_t>(gridDim.x) * V::kWarps) {
    mine.load(x + i * n * V::kPacks, n, lane);
    float4 own[V::kPacks];
#pragma unroll
    for (int q = 0; q < V::kPacks; ++q) own[q] = mine.at[min(lane, n - 1) * V::kPacks + q];
    for (int row = 0; row < n; ++row) {
      float sum = 0;
#pragma unroll
      for (int q = 0; q < V::kPacks; ++q) {
        const float4 other = mine.at[row * V::kPacks + q];
        sum += own[q].x * other.x + own[q].y * other.y + own[q].z * other.z + own[q].w * other.w;
      }
      const int k = place[row * kLanes + lane];
      if (k >= 0) y[i * pairs.count + k] = sum;
    }
    __syncwarp();
  }
}

template <int kWidth>
__global__ void pair_dots_grad(const float* dy, const float4* x, float4* dx, std::int64_t examples, int n,
                               const __grid_constant__ PairList pairs) {
  using V = Vectors<kWidth>;
  __shared__ V vectors[V::kWarps];
  __shared__ float factors[V::kWarps][kLanes * kPitch];
  __shared__ short at[kMostPairs];  // lanes read different ones, which constant memory gives one by one
  for (int k = threadIdx.x; k < pairs.count; k += blockDim.x) at[k] = pairs.at[k];
  __syncthreads();
  const int warp = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  V& mine = vectors[warp];
  float* const factor = factors[warp];
  for (int t = lane; t < kLanes * kPitch; t += kLanes) factor[t] = 0;
  __syncwarp();
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * V::kWarps + warp; i < examples;
       i += static_cast<std::int64_t>(gridDim.x) * V::kWarps) {
    for (int k = lane; k < pairs.count; k += kLanes) {
      const int a = at[k] / kLanes, b = at[k] % kLanes;
      const float g = dy[i * pairs.count + k];
      factor[a * kPitch + b] = a == b ? 2 * g : g;
      factor[b * kPitch + a] = a == b ? 2 * g : g;
    }
    mine.load(x + i * n * V::kPacks, n, lane);
    float4 sum[V::kPacks] = {};
    for (int row = 0; row < n; ++row) {
      const float f = factor[lane * kPitch + row];
#pragma unroll
      for (int q = 0; q < V::kPacks; ++q) {
        const float4 other = mine.at[row * V::kPacks + q];
        sum[q].x += f * other.x;
        sum[q].y += f * other.y;
        sum[q].z += f * other.z;
        sum[q].w += f * other.w;
      }
    }
    __syncwarp();
    if (lane < n)
#pragma unroll
      for (int q = 0; q < V::kPacks; ++q) mine.at[lane * V::kPacks + q] = sum[q];
    __syncwarp();
    for (int t = lane; t < n * V::kPacks; t += kLanes) dx[i * n * V::kPacks + t] = mine.at[t];
    __syncwarp();
  }
}

template <int kWidth>
unsigned blocks(std::int64_t examples) {
  return cuda::blocks_for(examples, Vectors<kWidth>::kWarps);
}

template <int kWidth>
PreparedKernel prepare_of(const PrepareContext& c) {
  const Shape& x = c.inputs[0].shape;
  PreparedKernel kernel;
  kernel.run = [examples = x[0], n = static_cast<int>(x[1]),
                pairs = pair_list(c, x[1])](const KernelArgs& a) {
    if (examples != 0 && pairs.count != 0)
      cuda::launch(pair_dots<kWidth>, blocks<kWidth>(examples), Vectors<kWidth>::kWarps * kLanes, 0, a.stream,
                   a.in<float4>(0), a.out<float>(0), examples, n, pairs);
  };
  return kernel;
}

template <int kWidth>
PreparedKernel prepare_grad_of(const PrepareContext& c) {
  const Shape& x = c.inputs[1].shape;
  PreparedKernel kernel;
  kernel.run = [examples = x[0], n = static_cast<int>(x[1]),
                pairs = pair_list(c, x[1])](const KernelArgs& a) {
    if (examples != 0)
      cuda::launch(pair_dots_grad<kWidth>, blocks<kWidth>(examples), Vectors<kWidth>::kWarps * kLanes, 0,
                   a.stream, a.in<float>(0), a.in<float4>(1), a.out<float4>(0), examples, n, pairs);
  };
  return kernel;
}

template <template <int> class Prepare>
PreparedKernel by_width(const PrepareContext& c, std::int64_t width) {
  switch (width) {
    case 4:
      return Prepare<4>{}(c);
    case 8:
      return Prepare<8>{}(c);
    case 16:
      return Prepare<16>{}(c);
    case 32:
      return Prepare<32>{}(c);
    default:
      return Prepare<64>{}(c);
  }
}
template <int kWidth>
struct Forward {
  PreparedKernel operator()(const PrepareContext& c) const { return prepare_of<kWidth>(c); }
};
template <int kWidth>
struct Backward {
  PreparedKernel operator()(const PrepareContext& c) const { return prepare_grad_of<kWidth>(c); }
};

bool supports(const Node&, std::span<const OutputInfo> inputs) {
  const OutputInfo& x = inputs.back();
  return x.dtype == DType::Float32 && pair_dots_on_device(x.shape[1], x.shape[2]);
}

}  // namespace

void register_pair_dots_cuda(OpRegistry& registry) {
  registry.add_cuda(
      "braid.PairDots", [](const PrepareContext& c) { return by_width<Forward>(c, c.inputs[0].shape[2]); },
      supports);
  registry.add_cuda(
      "braid.PairDotsGrad",
      [](const PrepareContext& c) { return by_width<Backward>(c, c.inputs[1].shape[2]); }, supports);
}

}  // namespace braid
