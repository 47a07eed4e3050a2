// The exchange where the communicator takes the memory of GPUs: enqueued on the comm stream with the size of
// full lists, and so captured with the rest of a step.
#include "comm/communicator.h"
#include "engine/ir/op.h"
#include "worker/strategies/allreduce_ops.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/hybrid_ops.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

PreparedKernel prepare_exchange(const PrepareContext& context) {
  auto& communicator = require_service<comm::Communicator>(context, "communicator");
  const auto deadline = require_service<StepServices>(context, "worker").peer_deadline;
  std::vector<comm::ReducePiece> shapes;
  for (const OutputInfo& output : context.outputs) {
    const auto bytes = static_cast<std::int64_t>(dtype_size(output.dtype));
    shapes.push_back({nullptr, nullptr, output.shape.elements() * bytes / output.shape[0]});
  }
  PreparedKernel kernel;
  kernel.run = [&communicator, deadline, pieces = std::move(shapes)](const KernelArgs& args) mutable {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      pieces[i].input = args.inputs[i];
      pieces[i].output = args.outputs[i];
    }
    communicator.all_to_all(pieces, DType::UInt8, args.stream, WaitContext::with_timeout(deadline));
  };
  return kernel;
}

}  // namespace

void register_hybrid_device_kernels(OpRegistry& registry) {
  registry.add_cuda("braid.AllToAll", prepare_exchange, on_device);
}

}  // namespace braid::worker
