// CUDA kernels of braid.PairDots and its gradient: a warp an example, whose vectors lie in shared memory and
// are multiplied by tensor cores (mma m16n8k8). Where the device's options forbid TF32 inputs, the factors
// are cut into two TF32 numbers each, of whose four products the smallest is left out, so that sums are as
// exact as those of float32 (the error of a product is below 2^-20 of it). The gradient is a product of the
// example's symmetric matrix of dy, zero where there is no pair, with its vectors.
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/fused/pair_dots.h"

namespace braid {
namespace {

constexpr int kLanes = 32;
constexpr int kRows = 32;  // vectors of an example, with zeros
static_assert(kRows == kMostPairVectors);

/// The k-th pair is (at[k] / kRows, at[k] % kRows), the larger first. On the device.
struct PairList {
  int count = 0;
  std::shared_ptr<std::byte[]> at;

  const std::int16_t* data() const { return reinterpret_cast<const std::int16_t*>(at.get()); }
};

PairList pair_list(const PrepareContext& c, std::int64_t n) {
  std::vector<std::int16_t> places;
  for (const std::int64_t pair : c.attr<std::vector<std::int64_t>>("pairs", {})) {
    const std::int64_t i = pair / n, j = pair % n;
    places.push_back(static_cast<std::int16_t>(std::max(i, j) * kRows + std::min(i, j)));
  }
  PairList list{static_cast<int>(places.size()), nullptr};
  if (places.empty()) return list;
  const std::uint64_t bytes = places.size() * sizeof(std::int16_t);
  list.at = c.accelerator->allocate(bytes, "pairs");
  c.accelerator->copy_now(list.at.get(), places.data(), bytes);
  return list;
}

/// A float as TF32 numbers: the sum of two, or the nearest one.
template <bool kExact>
struct Factor {
  std::uint32_t high, low = 0;

  __device__ explicit Factor(float x) {
    if constexpr (kExact) {
      high = __float_as_uint(x) & 0xffffe000U;
      low = __float_as_uint(x - __uint_as_float(high));
    } else {
      asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(high) : "f"(x));
    }
  }
};

/// c[16, 8] += a[16, 8] b[8, 8]. Lane 4 g + t has rows g and g + 8 of a in columns t and t + 4, column g of b
/// in rows t and t + 4, and rows g and g + 8 of c in columns 2 t and 2 t + 1 (PTX ISA, m16n8k8).
__device__ void multiply(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                         std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
template <bool kExact>
__device__ void multiply(float (&c)[4], const Factor<kExact> (&a)[4], const Factor<kExact> (&b)[2]) {
  if constexpr (kExact) {
    multiply(c, a[0].low, a[1].low, a[2].low, a[3].low, b[0].high, b[1].high);
    multiply(c, a[0].high, a[1].high, a[2].high, a[3].high, b[0].low, b[1].low);
  }
  multiply(c, a[0].high, a[1].high, a[2].high, a[3].high, b[0].high, b[1].high);
}

/// Where an example's vectors are: vector i of example b at at[i] + b * stride, in elements.
template <class T>
struct Places {
  T* at[kRows] = {};
  std::int64_t stride = 0;
  int n = 0;

  /// `memory`: the addresses of the inputs that are vectors, or of the outputs.
  Places(const PairVectors& v, const auto* memory) : stride(v.example_stride()), n(static_cast<int>(v.n)) {
    for (int i = 0; i < n; ++i)
      at[i] = v.inputs == 1 ? static_cast<T*>(memory[0]) + i * v.width : static_cast<T*>(memory[i]);
  }
};

template <int kWidth>
constexpr int kColumns = kWidth < 8 ? 8 : kWidth;  // of which those behind kWidth are zero
template <int kWidth>
constexpr int kWarps = kWidth == 64 ? 2 : 4;

/// A matrix in shared memory, for one warp.
template <int kPitch>
struct Matrix {
  alignas(16) float at[kRows * kPitch];

  __device__ void clear(int lane) {
    for (int t = lane; t < kRows * kPitch; t += kLanes) at[t] = 0;
    __syncwarp();
  }
  __device__ float operator()(int row, int column) const { return at[row * kPitch + column]; }
};

/// A lane's part of an example's vectors, on its way from global memory while the example before is computed.
template <int kWidth>
class Ahead {
 public:
  __device__ Ahead(const Places<const float>& from, int lane) : stride_(from.stride) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int row = (lane + k * kLanes) / kPacks, column = (lane + k * kLanes) % kPacks * 4;
      from_[k] = row < from.n ? from.at[row] + column : nullptr;
    }
  }
  __device__ void load(std::int64_t example) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k)
      if (from_[k]) packs_[k] = *reinterpret_cast<const float4*>(from_[k] + example * stride_);
  }
  template <int kPitch>
  __device__ void store(Matrix<kPitch>& matrix, int lane) const {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int row = (lane + k * kLanes) / kPacks, column = (lane + k * kLanes) % kPacks * 4;
      if (from_[k]) *reinterpret_cast<float4*>(matrix.at + row * kPitch + column) = packs_[k];
    }
    __syncwarp();
  }

 private:
  static constexpr int kPacks = kWidth / 4;
  const float* from_[kPacks];
  float4 packs_[kPacks];
  std::int64_t stride_;
};

/// Columns of y: `before` ones that are copied, the products, zeros.
struct Columns {
  const float* before;
  int count_before, width;
};

template <int kWidth, bool kExact>
__global__ void pair_dots(const __grid_constant__ Places<const float> x, float* y, std::int64_t examples,
                          Columns columns, const std::int16_t* pairs, int pair_count) {
  // Pitches for which lanes read, and write two floats each, in different banks.
  constexpr int kPitch = kColumns<kWidth> + 4, kPitchOfProducts = 40;
  __shared__ Matrix<kPitch> vectors[kWarps<kWidth>];
  __shared__ Matrix<kPitchOfProducts> products[kWarps<kWidth>];
  __shared__ std::int16_t places[kRows * kRows];  // of the pairs among the products
  const int warp = threadIdx.x / kLanes, lane = threadIdx.x % kLanes, g = lane / 4, t = lane % 4;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kWarps<kWidth> + warp;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarps<kWidth>;
  Ahead<kWidth> ahead(x, lane);
  if (first < examples) ahead.load(first);
  for (int q = threadIdx.x; q < pair_count; q += blockDim.x)
    places[q] = static_cast<std::int16_t>(pairs[q] / kRows * kPitchOfProducts + pairs[q] % kRows);
  auto& mine = vectors[warp];
  float* const product = products[warp].at;
  mine.clear(lane);
  __syncthreads();
  for (std::int64_t i = first; i < examples; i += step) {
    ahead.store(mine, lane);
    if (i + step < examples) ahead.load(i + step);
    float c[2][4][4] = {};
#pragma unroll
    for (int k = 0; k < kColumns<kWidth>; k += 8) {
#pragma unroll
      for (int band = 0; band < 2; ++band) {
        const Factor<kExact> a[4] = {Factor<kExact>(mine(16 * band + g, k + t)),
                                     Factor<kExact>(mine(16 * band + g + 8, k + t)),
                                     Factor<kExact>(mine(16 * band + g, k + t + 4)),
                                     Factor<kExact>(mine(16 * band + g + 8, k + t + 4))};
#pragma unroll
        for (int tile = 0; tile < 2 + 2 * band; ++tile) {  // above the diagonal no pair has its product
          const Factor<kExact> b[2] = {Factor<kExact>(mine(8 * tile + g, k + t)),
                                       Factor<kExact>(mine(8 * tile + g, k + t + 4))};
          multiply(c[band][tile], a, b);
        }
      }
    }
#pragma unroll
    for (int band = 0; band < 2; ++band)
#pragma unroll
      for (int tile = 0; tile < 2 + 2 * band; ++tile)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<float2*>(product + (16 * band + 8 * half + g) * kPitchOfProducts + 8 * tile +
                                     2 * t) =
              make_float2(c[band][tile][2 * half], c[band][tile][2 * half + 1]);
    __syncwarp();
    float* out = y + i * columns.width;
    for (int q = lane; q < columns.count_before; q += kLanes)
      out[q] = columns.before[i * columns.count_before + q];
    out += columns.count_before;
#pragma unroll 4
    for (int q = lane; q < pair_count; q += kLanes) out[q] = product[places[q]];
    for (int q = pair_count + lane; q < columns.width - columns.count_before; q += kLanes) out[q] = 0;
    __syncwarp();
  }
}

/// A lane's part of an example's dy, as Ahead.
class PairsAhead {
 public:
  __device__ void load(const float* dy, int pair_count, int lane) {
#pragma unroll
    for (int k = 0; k < kPairs; ++k)
      if (lane + k * kLanes < pair_count) values_[k] = dy[lane + k * kLanes];
  }
  /// Into the symmetric matrix; those that are not ahead are loaded now.
  template <int kPitch>
  __device__ void store(Matrix<kPitch>& matrix, const float* dy, const std::int16_t* places, int pair_count,
                        int lane) const {
    const auto put = [&](int q, float value) {
      const int a = places[q] / kRows, b = places[q] % kRows;
      if (a == b) value *= 2;
      matrix.at[a * kPitch + b] = value;
      matrix.at[b * kPitch + a] = value;
    };
#pragma unroll
    for (int k = 0; k < kPairs; ++k)
      if (lane + k * kLanes < pair_count) put(lane + k * kLanes, values_[k]);
    for (int q = lane + kPairs * kLanes; q < pair_count; q += kLanes) put(q, dy[q]);
    __syncwarp();
  }

 private:
  static constexpr int kPairs = 12;
  float values_[kPairs];
};

template <int kWidth, bool kExact>
__global__ void __launch_bounds__(kWarps<kWidth>* kLanes, kWidth <= 16 ? 6 : 1)
    pair_dots_grad(const float* dy, std::int64_t pitch, int columns_to,
                   const __grid_constant__ Places<const float> x, const __grid_constant__ Places<float> dx,
                   std::int64_t examples, const std::int16_t* pairs, int pair_count) {
  // Pitches for which lanes read in different banks.
  constexpr int kPitch = kColumns<kWidth> + (kWidth <= 8 ? 0 : 8), kPitchOfFactors = kRows + 4;
  constexpr int kTiles = kColumns<kWidth> / 8;
  __shared__ Matrix<kPitch> vectors[kWarps<kWidth>];
  __shared__ Matrix<kPitchOfFactors> factors[kWarps<kWidth>];
  __shared__ std::int16_t places[kRows * kRows];
  __shared__ float* results[kRows];
  const int warp = threadIdx.x / kLanes, lane = threadIdx.x % kLanes, g = lane / 4, t = lane % 4;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kWarps<kWidth> + warp;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarps<kWidth>;
  Ahead<kWidth> ahead(x, lane);
  PairsAhead pairs_ahead;
  const auto load = [&](std::int64_t example) {
    if (example >= examples) return;
    ahead.load(example);
    pairs_ahead.load(dy + example * pitch, pair_count, lane);
  };
  load(first);
  for (int q = threadIdx.x; q < pair_count; q += blockDim.x) places[q] = pairs[q];
  if (threadIdx.x < kRows) results[threadIdx.x] = dx.at[threadIdx.x];
  auto& mine = vectors[warp];
  auto& factor = factors[warp];
  mine.clear(lane);
  factor.clear(lane);
  __syncthreads();
  for (std::int64_t i = first; i < examples; i += step) {
    ahead.store(mine, lane);
    pairs_ahead.store(factor, dy + i * pitch, places, pair_count, lane);
    load(i + step);
    float c[2][kTiles][4] = {};
#pragma unroll
    for (int k = 0; k < kRows; k += 8) {
#pragma unroll
      for (int band = 0; band < 2; ++band) {
        const Factor<kExact> a[4] = {Factor<kExact>(factor(16 * band + g, k + t)),
                                     Factor<kExact>(factor(16 * band + g + 8, k + t)),
                                     Factor<kExact>(factor(16 * band + g, k + t + 4)),
                                     Factor<kExact>(factor(16 * band + g + 8, k + t + 4))};
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const Factor<kExact> b[2] = {Factor<kExact>(mine(k + t, 8 * tile + g)),
                                       Factor<kExact>(mine(k + t + 4, 8 * tile + g))};
          multiply(c[band][tile], a, b);
        }
      }
    }
#pragma unroll
    for (int band = 0; band < 2; ++band)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = 16 * band + 8 * half + g;
        if (row >= dx.n) continue;
        if (row == columns_to) {  // those in front of dy
#pragma unroll
          for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
            for (int side = 0; side < 2; ++side)
              if (8 * tile + 2 * t < kWidth)
                c[band][tile][2 * half + side] += dy[i * pitch - kWidth + 8 * tile + 2 * t + side];
        }
        float* const out = results[row] + i * dx.stride + 2 * t;
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
          if (8 * tile + 2 * t < kWidth)
            *reinterpret_cast<float2*>(out + 8 * tile) =
                make_float2(c[band][tile][2 * half], c[band][tile][2 * half + 1]);
      }
    __syncwarp();
  }
}

template <int kWidth>
unsigned blocks(std::int64_t examples) {
  return cuda::blocks_for(examples, kWarps<kWidth>);
}

template <int kWidth>
PreparedKernel prepare_of(const PrepareContext& c) {
  const PairVectors v = pair_vectors(c.node, c.inputs);
  const auto function = c.accelerator->options().tf32 ? pair_dots<kWidth, false> : pair_dots<kWidth, true>;
  PreparedKernel kernel;
  kernel.run = [function, v, before = static_cast<int>(columns_before_pairs(c)),
                width = static_cast<int>(c.outputs[0].shape[1]),
                pairs = pair_list(c, v.n)](const KernelArgs& a) {
    const Columns columns{before != 0 ? a.in<float>(v.inputs) : nullptr, before, width};
    if (v.examples != 0 && width != 0)
      cuda::launch(function, blocks<kWidth>(v.examples), kWarps<kWidth> * kLanes, 0, a.stream,
                   Places<const float>(v, a.inputs), a.out<float>(0), v.examples, columns, pairs.data(),
                   pairs.count);
  };
  return kernel;
}

template <int kWidth>
PreparedKernel prepare_grad_of(const PrepareContext& c) {
  const PairVectors v = pair_vectors(c.node, c.inputs);
  const auto function =
      c.accelerator->options().tf32 ? pair_dots_grad<kWidth, false> : pair_dots_grad<kWidth, true>;
  PreparedKernel kernel;
  kernel.run = [function, v, columns_to = static_cast<int>(c.attr<std::int64_t>("columns_to", -1)),
                pitch = c.inputs[0].shape[1], offset = c.attr<std::int64_t>("offset", 0),
                pairs = pair_list(c, v.n)](const KernelArgs& a) {
    if (v.examples != 0)
      cuda::launch(function, blocks<kWidth>(v.examples), kWarps<kWidth> * kLanes, 0, a.stream,
                   a.in<float>(0) + offset, pitch, columns_to, Places<const float>(v, a.inputs + 1),
                   Places<float>(v, a.outputs), v.examples, pairs.data(), pairs.count);
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

/// Vectors of an input begin at multiples of 16 bytes.
bool supports(const Node& node, std::span<const OutputInfo> inputs) {
  const PairVectors v = pair_vectors(node, inputs);
  return inputs[0].dtype == DType::Float32 && pair_dots_on_device(v.n, v.width);
}

template <template <int> class Prepare>
PreparedKernel prepare(const PrepareContext& c) {
  return by_width<Prepare>(c, pair_vectors(c.node, c.inputs).width);
}

}  // namespace

void register_pair_dots_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.PairDots", prepare<Forward>, supports);
  registry.add_cuda("braid.PairDotsGrad", prepare<Backward>, supports);
}

}  // namespace braid
