// braid.GroupGather, braid.GroupAllToAll and braid.GroupReduceScatter where the communicator takes the memory
// of GPUs: enqueued on the comm stream.
#include "comm/communicator.h"
#include "engine/device/accelerator.h"
#include "engine/ir/op.h"
#include "worker/strategies/allreduce_ops.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/group_all_to_all.h"
#include "worker/strategies/group_gather.h"
#include "worker/strategies/group_ops.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

PreparedKernel prepare_device_gather(const PrepareContext& context) {
  auto& communicator = require_service<comm::Communicator>(context, "communicator");
  const auto deadline = require_service<StepServices>(context, "worker").peer_deadline;
  const GroupGather gather(context, communicator);
  PreparedKernel kernel;
  kernel.scratch_bytes = gather.scratch_bytes();
  kernel.run = [&communicator, deadline, gather, device = context.accelerator](const KernelArgs& args) {
    const auto copy = [&](void* to, const void* from, std::size_t bytes) {
      device->copy(to, from, bytes, args.stream);
    };
    gather.run(communicator, args, copy, WaitContext::with_timeout(deadline));
  };
  return kernel;
}

PreparedKernel prepare_device_scatter(const PrepareContext& context) {
  auto& communicator = require_service<comm::Communicator>(context, "communicator");
  const auto deadline = require_service<StepServices>(context, "worker").peer_deadline;
  if (std::ssize(context.attr<std::vector<std::int64_t>>(kMembers, {})) != communicator.size())
    context.fail("a part of the job's ranks");
  PreparedKernel kernel;
  kernel.run = [&communicator, deadline,
                count = context.outputs[0].shape.elements()](const KernelArgs& args) {
    communicator.reduce_scatter(args.inputs[0], args.outputs[0], count, DType::Float32, comm::ReduceOp::Sum,
                                args.stream, WaitContext::with_timeout(deadline));
  };
  return kernel;
}

PreparedKernel prepare_device_all_to_all(const PrepareContext& context) {
  auto& communicator = require_service<comm::Communicator>(context, "communicator");
  const auto deadline = require_service<StepServices>(context, "worker").peer_deadline;
  const GroupAllToAll exchange(context, communicator);
  PreparedKernel kernel;
  kernel.run = [&communicator, deadline, exchange](const KernelArgs& args) {
    exchange.run(communicator, args, WaitContext::with_timeout(deadline));
  };
  return kernel;
}

}  // namespace

void register_group_device_kernels(OpRegistry& registry) {
  registry.add_cuda("braid.GroupGather", prepare_device_gather, on_device);
  registry.add_cuda("braid.GroupAllToAll", prepare_device_all_to_all, on_device);
  registry.add_cuda("braid.GroupReduceScatter", prepare_device_scatter, on_device);
}

}  // namespace braid::worker
