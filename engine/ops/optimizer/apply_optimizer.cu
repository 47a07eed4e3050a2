// CUDA kernels of braid.ApplyOptimizer and braid.ApplyOptimizerMany: one launch updates up to kMost
// variables, whose addresses and sizes are the kernel's argument. A block works on kTile elements of one
// variable.
#include <algorithm>

#include "engine/device/accelerator.h"
#include "engine/ops/common/cuda/block_owner.cuh"
#include "engine/ops/optimizer/update.cuh"
#include "engine/ops/optimizer/update_inputs.h"

namespace braid {
namespace {

constexpr int kPack = 4;
constexpr int kTile = 2 * kPack * cuda::kThreads;
constexpr int kMost = 70;  // a kernel's arguments are 4 KiB

struct Variable {
  float* weights;
  const float* gradient;
  float* slots[cuda::kSlots];
  std::int64_t elements;
  std::int32_t first_block;
  bool packed;  // all of it is aligned to packs
};

struct Variables {
  int count = 0;
  Variable at[kMost];
};
static_assert(sizeof(Variables) + sizeof(OptimizerSpec) + 2 * sizeof(void*) <= 4096);

template <class Formula, bool kBasic>
__device__ void update_tile(const PreparedUpdate& shared, const Variable& v, std::int64_t begin,
                            std::int64_t end) {
  const PreparedUpdate u = shared;
  float* const slots[cuda::kSlots] = {v.slots[0], v.slots[1], v.slots[2]};
  std::int64_t rest = begin;
  if (v.packed) {
    using Elements = cuda::Pack<float, kPack>;
    rest = end / kPack * kPack;  // `begin` is on a boundary
#pragma unroll 2
    for (std::int64_t i = begin + threadIdx.x * kPack; i < rest; i += cuda::kThreads * kPack)
      cuda::update_pack<Formula, kPack, kBasic>(u, *reinterpret_cast<const Elements*>(v.gradient + i),
                                                v.weights, slots, i);
  }
  for (std::int64_t i = rest + threadIdx.x; i < end; i += cuda::kThreads)
    cuda::update_pack<Formula, 1, kBasic>(u, {v.gradient[i]}, v.weights, slots, i);
}

template <bool kBasic>
__global__ void __launch_bounds__(cuda::kThreads)
    update_kernel(const __grid_constant__ Variables variables, const __grid_constant__ OptimizerSpec spec,
                  const StepParams* params, const float* factor) {
  __shared__ PreparedUpdate u;
  cuda::load_update(u, spec, params, factor);
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  const Variable& v = cuda::part_of_block(variables, block);
  const std::int64_t begin = static_cast<std::int64_t>(block - v.first_block) * kTile;
  const std::int64_t end = begin + kTile < v.elements ? begin + kTile : v.elements;
  cuda::with_formula<kBasic>(u, [&]<class Formula>() { update_tile<Formula, kBasic>(u, v, begin, end); });
}

/// Adds a variable's blocks; the number of blocks so far.
std::int32_t add(Variables& to, const KernelArgs& a, const UpdateInputs& in, int v, std::int64_t elements,
                 std::int32_t blocks) {
  Variable& added = to.at[to.count++];
  added = {.weights = a.var<float>(in.handle(v)),
           .gradient = a.in<float>(in.gradient(v)),
           .slots = {},
           .elements = elements,
           .first_block = blocks,
           .packed = true};
  for (int s = 0; s < in.slots; ++s) added.slots[s] = a.var<float>(in.slot(v, s));
  // Slots that there are not are null, which is aligned.
  for (const void* p : {static_cast<const void*>(added.weights), static_cast<const void*>(added.gradient),
                        static_cast<const void*>(added.slots[0]), static_cast<const void*>(added.slots[1]),
                        static_cast<const void*>(added.slots[2])})
    added.packed = added.packed && cuda::is_aligned16(p);
  return blocks + static_cast<std::int32_t>((elements + kTile - 1) / kTile);
}

PreparedKernel prepare(const PrepareContext& c) {
  const UpdateInputs in = prepared_update_inputs(c, 1);
  std::vector<std::int64_t> elements;
  for (int v = 0; v < in.variables; ++v)
    elements.push_back(c.inputs[static_cast<std::size_t>(in.handle(v))].shape.elements());
  PreparedKernel kernel;
  kernel.run = [in, elements = std::move(elements)](const KernelArgs& a) {
    Variables table;
    std::int32_t blocks = 0;
    const auto flush = [&] {
      if (blocks != 0)
        cuda::launch(is_basic(in.spec) ? update_kernel<true> : update_kernel<false>,
                     static_cast<unsigned>(blocks), cuda::kThreads, 0, a.stream, table, in.spec, a.params,
                     in.factor_of(a));
      table.count = 0;
      blocks = 0;
    };
    for (int v = 0; v < in.variables; ++v) {
      if (elements[static_cast<std::size_t>(v)] == 0) continue;
      blocks = add(table, a, in, v, elements[static_cast<std::size_t>(v)], blocks);
      if (table.count == kMost) flush();
    }
    flush();
  };
  return kernel;
}

PreparedKernel prepare_to(const PrepareContext& c) {
  const UpdateInputs in = prepared_update_inputs(c, 1);
  PreparedKernel kernel;
  kernel.run = [in, elements = c.inputs[0].shape.elements(), device = c.accelerator](const KernelArgs& a) {
    if (elements == 0) return;
    Variables table;
    const std::int32_t blocks = add(table, a, in, 0, elements, 0);
    Variable& v = table.at[0];
    for (int s = 0; s < in.slots; ++s) {
      if (a.outputs[s] != a.inputs[s + 1])
        device->copy(a.outputs[s], a.inputs[s + 1], static_cast<std::uint64_t>(elements) * sizeof(float),
                     a.stream);
      v.slots[s] = a.out<float>(s);
      v.packed = v.packed && cuda::is_aligned16(v.slots[s]);
    }
    cuda::launch(is_basic(in.spec) ? update_kernel<true> : update_kernel<false>,
                 static_cast<unsigned>(blocks), cuda::kThreads, 0, a.stream, table, in.spec, a.params,
                 nullptr);
  };
  return kernel;
}

}  // namespace

void register_apply_optimizer_cuda(OpRegistry& registry) {
  for (const char* op : {"braid.ApplyOptimizer", "braid.ApplyOptimizerMany"})
    registry.add_cuda(op, prepare, [](const Node& node, std::span<const OutputInfo> inputs) {
      return updates_float32(node, inputs, 1);
    });
  registry.add_cuda(
      "braid.ApplyOptimizerTo", prepare_to,
      [](const Node& node, std::span<const OutputInfo> inputs) { return updates_float32(node, inputs, 1); });
}

}  // namespace braid
