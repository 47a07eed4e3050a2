// CUDA kernel of braid.ApplyAdam8Bit: a warp does blocks of 256 elements, 8 a lane, with the tables of codes
// in shared memory.
#include "engine/ops/optimizer/adam_codes.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "engine/ops/optimizer/update.cuh"

namespace braid {
namespace {

using adam_codes::kBlock;
using adam_codes::Table;

constexpr int kWarp = 32;
constexpr int kLane = static_cast<int>(kBlock) / kWarp;  // elements of a lane

struct Moments {
  float* weights;            // [elements]
  const float* gradient;     // [elements]
  std::uint8_t *m, *v;       // [elements]
  float *m_scale, *v_scale;  // [blocks]
  std::int64_t elements;
  bool packed;  // all of it is aligned to packs
};

__device__ float warp_max(float x) {
  for (int other = kWarp / 2; other > 0; other /= 2) {
    const float y = __shfl_xor_sync(0xffffffffU, x, other);
    x = y > x ? y : x;
  }
  return x;
}

/// What a lane has of a block.
struct Lane {
  float w[kLane], g[kLane], m[kLane], v[kLane];
};

__device__ void step(const PreparedUpdate& u, Lane& lane) {
#pragma unroll
  for (int e = 0; e < kLane; ++e) {
    if (u.skip_nan && lane.g[e] != lane.g[e]) continue;
    const auto [w, g] = optim::surrounded(u, lane.w[e], lane.g[e] * u.grad_scale);
    float moments[optim::kMostSlots] = {lane.m[e], lane.v[e]};
    lane.w[e] = optim::Adam::apply(u, w, g, moments);
    lane.m[e] = moments[0];
    lane.v[e] = moments[1];
  }
}

__device__ float largest(const float (&values)[kLane], int count) {
  float most = 0;
#pragma unroll
  for (int e = 0; e < kLane; ++e) {
    const float x = fabsf(values[e]);
    if (e < count && x > most) most = x;
  }
  return warp_max(most);
}

__device__ std::uint8_t code(const Table& table, float value, float scale) {
  return scale > 0 ? adam_codes::code_of(table, value / scale) : std::uint8_t{0};
}

__device__ const Table kTables[] = {adam_codes::kSigned, adam_codes::kUnsigned};

template <int kCount, class T>
__device__ void copy(T* to, const T* from) {
  *reinterpret_cast<cuda::Pack<T, kCount>*>(to) = *reinterpret_cast<const cuda::Pack<T, kCount>*>(from);
}

/// Of `count` elements, which are packs where that is kLane and `packed` is set.
template <class T>
__device__ void move(T* to, const T* from, int count, bool packed) {
  constexpr int kPack = sizeof(T) == 1 ? kLane : 16 / static_cast<int>(sizeof(T));
  if (packed && count == kLane) {
#pragma unroll
    for (int e = 0; e < kLane; e += kPack) copy<kPack>(to + e, from + e);
  } else {
    for (int e = 0; e < count; ++e) to[e] = from[e];
  }
}

/// A lane's part of a block, from `first` on.
__device__ void update_part(const PreparedUpdate& u, const Table (&tables)[2], const Moments& of,
                            std::int64_t block, std::int64_t first, int count) {
  alignas(16) Lane lane{};
  alignas(16) std::uint8_t m[kLane] = {}, v[kLane] = {};
  const float m_scale = of.m_scale[block], v_scale = of.v_scale[block];
  move(lane.w, of.weights + first, count, of.packed);
  move(lane.g, of.gradient + first, count, of.packed);
  move(m, of.m + first, count, of.packed);
  move(v, of.v + first, count, of.packed);
#pragma unroll
  for (int e = 0; e < kLane; ++e) {
    lane.m[e] = m_scale * adam_codes::value_of(tables[0], m[e]);
    lane.v[e] = v_scale * adam_codes::value_of(tables[1], v[e]);
  }
  step(u, lane);
  const float most_m = largest(lane.m, count), most_v = largest(lane.v, count);
#pragma unroll
  for (int e = 0; e < kLane; ++e) {
    m[e] = code(tables[0], lane.m[e], most_m);
    v[e] = code(tables[1], lane.v[e], most_v);
  }
  move(of.weights + first, lane.w, count, of.packed);
  move(of.m + first, m, count, of.packed);
  move(of.v + first, v, count, of.packed);
  if (threadIdx.x % kWarp == 0) {
    of.m_scale[block] = most_m;
    of.v_scale[block] = most_v;
  }
}

__global__ void __launch_bounds__(cuda::kThreads)
    adam_8bit(const __grid_constant__ Moments of, const __grid_constant__ OptimizerSpec spec,
              const StepParams* params) {
  __shared__ PreparedUpdate u;
  __shared__ Table tables[2];
  constexpr int kWords = sizeof(tables) / sizeof(int);
  for (int i = static_cast<int>(threadIdx.x); i < kWords; i += cuda::kThreads)
    reinterpret_cast<int*>(tables)[i] = reinterpret_cast<const int*>(kTables)[i];
  cuda::load_update(u, spec, params);  // all wait for each other here
  const std::int64_t blocks = (of.elements + kBlock - 1) / kBlock;
  const int at = static_cast<int>(threadIdx.x) % kWarp * kLane;
  for (std::int64_t block = cuda::grid_index() / kWarp; block < blocks; block += cuda::grid_size() / kWarp) {
    const std::int64_t first = block * kBlock + at, rest = of.elements - first;
    const int count = rest >= kLane ? kLane : rest > 0 ? static_cast<int>(rest) : 0;
    update_part(u, tables, of, block, first, count);
  }
}

PreparedKernel prepare(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [elements = c.inputs[0].shape.elements(),
                spec = optimizer_spec(c.node.attrs)](const KernelArgs& a) {
    if (elements == 0) return;
    Moments of{.weights = a.var<float>(0),
               .gradient = a.in<float>(5),
               .m = a.var<std::uint8_t>(1),
               .v = a.var<std::uint8_t>(2),
               .m_scale = a.var<float>(3),
               .v_scale = a.var<float>(4),
               .elements = elements,
               .packed = true};
    for (const void* p : {static_cast<const void*>(of.weights), static_cast<const void*>(of.gradient),
                          static_cast<const void*>(of.m), static_cast<const void*>(of.v)})
      of.packed = of.packed && cuda::is_aligned16(p);
    const std::int64_t warps = (elements + kBlock - 1) / kBlock;
    cuda::launch(adam_8bit, cuda::blocks_for(warps * kWarp), cuda::kThreads, 0, a.stream, of, spec, a.params);
  };
  return kernel;
}

}  // namespace

void register_adam_8bit_cuda(OpRegistry& registry) { registry.add_cuda("braid.ApplyAdam8Bit", prepare); }

}  // namespace braid
