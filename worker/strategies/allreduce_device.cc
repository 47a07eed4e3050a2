// The collective ops where the communicator takes the memory of GPUs: enqueued on the comm stream, and so
// captured with the rest of a step. The communicator watches the steps, since nothing here waits.
#include "comm/communicator.h"
#include "engine/device/accelerator.h"
#include "engine/ir/op.h"
#include "engine/ops/common/halves.h"
#include "worker/strategies/allreduce_ops.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/gathered_rows.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

PreparedKernel prepare_all_reduce(const PrepareContext& context) {
  auto& communicator = require_service<comm::Communicator>(context, "communicator");
  const auto deadline = require_service<StepServices>(context, "worker").peer_deadline;
  if (context.attr(kRankOrder, false) && communicator.size() > 2)
    context.fail("a device adds up more than two ranks in an order of its own");
  std::vector<comm::ReducePiece> shapes;
  for (const OutputInfo& input : context.inputs) {
    if (input.dtype != context.inputs[0].dtype || (input.dtype != DType::Float32 && !is_half(input.dtype)))
      context.fail("gradients must be float32, or halves of one type");
    shapes.push_back({nullptr, nullptr, input.shape.elements()});
  }
  PreparedKernel kernel;
  kernel.run = [&communicator, deadline, dtype = context.inputs[0].dtype,
                pieces = std::move(shapes)](const KernelArgs& args) mutable {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      pieces[i].input = args.inputs[i];
      pieces[i].output = args.outputs[i];
    }
    communicator.all_reduce(pieces, dtype, comm::ReduceOp::Sum, args.stream,
                            WaitContext::with_timeout(deadline));
  };
  return kernel;
}

PreparedKernel prepare_all_gather_rows(const PrepareContext& context) {
  auto& communicator = require_service<comm::Communicator>(context, "communicator");
  const auto deadline = require_service<StepServices>(context, "worker").peer_deadline;
  const GatheredRows indices(context, 0), values(context, 1);
  PreparedKernel kernel;
  kernel.scratch_bytes = indices.scratch_bytes() + values.scratch_bytes();
  kernel.run = [&communicator, deadline, indices, values,
                device = context.accelerator](const KernelArgs& args) {
    const WaitContext wait = WaitContext::with_timeout(deadline);
    const auto copy = [&](void* to, const void* from, std::size_t bytes) {
      device->copy(to, from, bytes, args.stream);
    };
    indices.run(communicator, args, args.scratch, copy, wait);
    values.run(communicator, args, static_cast<char*>(args.scratch) + indices.scratch_bytes(), copy, wait);
  };
  return kernel;
}

PreparedKernel prepare_stop_vote(const PrepareContext& context) {
  const std::shared_ptr<std::byte[]> vote = require_service<StepServices>(context, "worker").vote;
  if (!vote) context.fail("this process has no stop vote for the device");
  PreparedKernel kernel;
  kernel.run = [vote, device = context.accelerator](const KernelArgs& args) {
    device->copy(args.outputs[0], vote.get(), sizeof(float), args.stream);
  };
  return kernel;
}

}  // namespace

void register_allreduce_device_kernels(OpRegistry& registry) {
  registry.add_cuda("braid.AllReduce", prepare_all_reduce, on_device);
  registry.add_cuda("braid.AllGatherRows", prepare_all_gather_rows, on_device);
  registry.add_cuda("braid.StopVote", prepare_stop_vote, on_device);
}

}  // namespace braid::worker
