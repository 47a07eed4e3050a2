#include "worker/strategies/shard_ops.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "comm/communicator.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "engine/ops/optimizer/update_inputs.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/kernel_scratch.h"
#include "worker/strategies/packed_gradients.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

/// What of each array of a row is in this rank's part.
struct Run {
  std::size_t array = 0;
  std::int64_t first = 0, count = 0;  // elements of the array
  std::int64_t at = 0;                // in the part
};

std::vector<Run> runs_of_part(const std::vector<std::int64_t>& counts, std::int64_t part, std::int64_t rank) {
  std::vector<Run> runs;
  const std::int64_t first = part * rank, last = first + part;
  std::int64_t at = 0;
  for (std::size_t a = 0; a < counts.size(); at += counts[a++]) {
    const std::int64_t begin = std::max(at, first), end = std::min(at + counts[a], last);
    if (begin < end) runs.push_back({a, begin - at, end - begin, begin - first});
  }
  return runs;
}

PreparedKernel prepare_reduce_scatter(const PrepareContext& c) {
  auto& communicator = require_service<comm::Communicator>(c, "communicator");
  const auto deadline = require_service<StepServices>(c, "worker").peer_deadline;
  const PackedGradients packed(c, communicator.size());
  PreparedKernel kernel;
  kernel.scratch_bytes = static_cast<std::size_t>(packed.size()) * sizeof(float);
  kernel.run = [=, &communicator](const KernelArgs& args) {
    auto* const all = static_cast<float*>(args.scratch);
    packed.pack(args, all);
    communicator.reduce_scatter(all, args.outputs[0], packed.part, DType::Float32, comm::ReduceOp::Sum,
                                args.stream, args.wait->at_most(deadline));
  };
  return kernel;
}

PreparedKernel prepare_own_part(const PrepareContext& c) {
  const auto& communicator = require_service<comm::Communicator>(c, "communicator");
  const PackedGradients packed(c, communicator.size());
  const std::vector<Run> runs = runs_of_part(packed.counts, packed.part, communicator.rank());
  return serial_kernel([packed, runs](const KernelArgs& args) {
    float* const part = args.out<float>(0);
    std::fill_n(part, packed.part, 0.0F);
    for (const Run& run : runs)
      std::copy_n(args.in<float>(static_cast<int>(run.array)) + run.first, run.count, part + run.at);
  });
}

void infer_part(InferContext& c) { c.output(DType::Float32, Shape{c.attr<std::int64_t>(kPart, 0)}); }

PreparedKernel prepare_apply(const PrepareContext& c) {
  const OptimizerSpec spec = optimizer_spec(c.node.attrs);
  const auto slots = optimizer_slots(spec).size();
  const std::size_t variables = c.inputs.size() - slots - 1;
  std::vector<std::int64_t> counts;
  for (std::size_t v = 0; v < variables; ++v) counts.push_back(c.inputs[v].shape.elements());
  const std::int64_t part = c.inputs.back().shape.elements();
  const std::vector<Run> runs =
      runs_of_part(counts, part, require_service<comm::Communicator>(c, "communicator").rank());
  return serial_kernel([=, pool = &c.pool](const KernelArgs& args) {
    const PreparedUpdate update = step_update(spec, *args.params);
    const float* const gradient = args.in<float>(static_cast<int>(variables + slots));
    for (const Run& run : runs)
      pool->parallel_range(run.count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
        const auto n = static_cast<std::size_t>(end - begin);
        std::array<float*, 3> of_slots{};
        for (std::size_t s = 0; s < slots; ++s)
          of_slots[s] = args.var<float>(static_cast<int>(variables + s)) + run.at + begin;
        apply_update(update, {args.var<float>(static_cast<int>(run.array)) + run.first + begin, n},
                     {gradient + run.at + begin, n}, {of_slots.data(), slots});
      });
  });
}

PreparedKernel prepare_gather(const PrepareContext& c) {
  auto& communicator = require_service<comm::Communicator>(c, "communicator");
  const auto deadline = require_service<StepServices>(c, "worker").peer_deadline;
  const PackedGradients packed(c, communicator.size());
  const std::vector<Run> runs = runs_of_part(packed.counts, packed.part, communicator.rank());
  KernelScratch scratch;
  const std::size_t own_at = scratch.add<float>(packed.part), all_at = scratch.add<float>(packed.size());
  PreparedKernel kernel;
  kernel.scratch_bytes = scratch.bytes();
  kernel.run = [=, &communicator](const KernelArgs& args) {
    if (packed.world == 1) return;
    auto *const own = KernelScratch::array<float>(args, own_at), *const all = KernelScratch::array<float>(
                                                                     args, all_at);
    std::fill_n(own, packed.part, 0.0F);
    for (const Run& run : runs)
      std::copy_n(args.in<float>(static_cast<int>(run.array)) + run.first, run.count, own + run.at);
    communicator.all_gather(own, all, packed.part, DType::Float32, args.stream, args.wait->at_most(deadline));
    const float* from = all;
    for (std::size_t v = 0; v < packed.counts.size(); from += packed.counts[v++])
      std::memcpy(args.inputs[v], from, static_cast<std::size_t>(packed.counts[v]) * sizeof(float));
  };
  return kernel;
}

}  // namespace

void register_shard_ops(OpRegistry& registry) {
  OpDef scatter = exchange_op("braid.ReduceScatterGradients", Lane::Comm);
  scatter.traits = computes();
  scatter.min_inputs = 1;
  scatter.infer = infer_part;
  scatter.cpu = prepare_reduce_scatter;
  registry.add(std::move(scatter));

  OpDef own;
  own.name = "braid.OwnPart";
  own.traits = computes();
  own.min_inputs = 1;
  own.max_inputs = -1;
  own.infer = infer_part;
  own.no_gradient_reason = "of gradients, after differentiation";
  own.cpu = prepare_own_part;
  registry.add(std::move(own));

  OpDef apply;
  apply.name = "braid.ApplyPart";
  apply.traits = updates();
  apply.min_inputs = 2;
  apply.max_inputs = -1;
  apply.infer = [](InferContext&) {};
  apply.no_gradient_reason = "it writes variables";
  apply.cpu = prepare_apply;
  apply.further_handles = Access::ReadWrite;
  apply.side_effect = true;
  registry.add(std::move(apply));

  OpDef gather = exchange_op("braid.GatherVariables", Lane::Comm);
  gather.traits = updates();
  gather.min_inputs = 1;
  gather.infer = [](InferContext&) {};
  gather.cpu = prepare_gather;
  gather.further_handles = Access::ReadWrite;
  registry.add(std::move(gather));
}

}  // namespace braid::worker
