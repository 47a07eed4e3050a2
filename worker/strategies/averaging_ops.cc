#include "worker/strategies/averaging_ops.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "comm/communicator.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

PreparedKernel prepare_average(const PrepareContext& c) {
  auto& communicator = require_service<comm::Communicator>(c, "communicator");
  const StepServices& services = require_service<StepServices>(c, "worker");
  const auto every = static_cast<std::uint64_t>(c.attr<std::int64_t>("every", 1));
  const auto weight = static_cast<float>(c.attr<double>("weight", 1));
  const bool riders = c.attr<bool>("riders", false);
  std::vector<std::int64_t> counts;
  std::int64_t total = riders ? 2 : 0;
  for (std::size_t i = 0; i + (riders ? 2 : 0) < c.inputs.size(); ++i) {
    if (c.inputs[i].dtype != DType::Float32) c.fail("variables must hold float32");
    counts.push_back(c.inputs[i].shape.elements());
    total += counts.back();
  }
  PreparedKernel kernel;
  kernel.scratch_bytes = static_cast<std::size_t>(total) * sizeof(float);
  kernel.run = [&communicator, &services, every, weight, riders, counts, total](const KernelArgs& args) {
    const std::uint64_t done = args.params->step + 1;
    const bool due = done % every == 0 || done == services.total_steps.load();
    const std::size_t loss = counts.size();
    if (!due) {
      if (!riders) return;
      *args.out<float>(0) = *args.in<float>(static_cast<int>(loss));
      *args.out<float>(1) = 0;
      return;
    }
    auto* const packed = static_cast<float*>(args.scratch);
    float* at = packed;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const float* const values = args.in<float>(static_cast<int>(i));
      at = std::transform(values, values + counts[i], at, [&](float x) { return weight * x; });
    }
    if (riders) {
      at[0] = weight * *args.in<float>(static_cast<int>(loss));
      at[1] = *args.in<float>(static_cast<int>(loss) + 1);
    }
    communicator.all_reduce(packed, packed, total, DType::Float32, comm::ReduceOp::Sum, args.stream,
                            args.wait->at_most(services.peer_deadline));
    at = packed;
    for (std::size_t i = 0; i < counts.size(); at += counts[i++])
      std::memcpy(args.inputs[i], at, static_cast<std::size_t>(counts[i]) * sizeof(float));
    if (riders)
      std::memcpy(args.outputs[0], at, sizeof(float)), std::memcpy(args.outputs[1], at + 1, sizeof(float));
  };
  return kernel;
}

}  // namespace

void register_averaging_ops(OpRegistry& registry) {
  OpDef op = exchange_op("braid.AverageVariables", Lane::Comm);
  op.traits = computes().output_list();
  op.infer = [](InferContext& context) {
    if (!context.attr<bool>("riders", false)) return;
    for (int rider = 0; rider < 2; ++rider) context.output(DType::Float32, Shape{});
  };
  op.cpu = prepare_average;
  op.further_handles = Access::ReadWrite;
  registry.add(std::move(op));
}

}  // namespace braid::worker
