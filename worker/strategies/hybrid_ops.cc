#include "worker/strategies/hybrid_ops.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "engine/ir/op.h"
#include "worker/strategies/allreduce_ops.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/host_exchange.h"
#include "worker/strategies/step_services.h"
#include "worker/strategies/table_service.h"

namespace braid::worker {
namespace {

PreparedKernel prepare_host_exchange(const PrepareContext& context) {
  const auto exchange = std::make_shared<HostExchange>(
      context, context.outputs.size(), require_service<comm::Communicator>(context, "communicator"),
      require_service<StepServices>(context, "worker").peer_deadline);
  PreparedKernel kernel;
  kernel.scratch_bytes = exchange->scratch_bytes();
  kernel.run = [exchange](const KernelArgs& args) { exchange->run(args); };
  return kernel;
}

void infer_exchange(InferContext& c) {
  const auto parts = static_cast<int>(c.attr("parts", std::int64_t{0}));
  if (parts < 1 || (c.inputs() != parts && c.inputs() != 3 * parts))
    c.fail("attribute parts is " + std::to_string(parts) + ", but there are " + std::to_string(c.inputs()) +
           " inputs");
  for (int i = 0; i < parts; ++i) c.output(c.dtype(i), c.shape(i));
}

PreparedKernel prepare_served_rows(const PrepareContext& context) {
  auto& tables = require_service<TableService>(context, "sharded tables");
  const auto deadline = require_service<StepServices>(context, "worker").peer_deadline;
  const auto table = static_cast<int>(context.attr("table", std::int64_t{0}));
  const std::int64_t n = context.inputs[0].shape.elements();
  const bool is_wide = context.inputs[0].dtype == DType::Int64;
  PreparedKernel kernel;
  kernel.scratch_bytes = is_wide ? 0 : static_cast<std::size_t>(n) * sizeof(std::int64_t);
  kernel.run = [&tables, deadline, table, n, is_wide](const KernelArgs& args) {
    const auto* ids = args.in<std::int64_t>(0);
    if (!is_wide) {
      std::copy_n(args.in<std::int32_t>(0), n, static_cast<std::int64_t*>(args.scratch));
      ids = static_cast<const std::int64_t*>(args.scratch);
    }
    tables.look_up(table, {ids, static_cast<std::size_t>(n)}, args.out<float>(0),
                   args.wait->at_most(deadline));
  };
  return kernel;
}

}  // namespace

void register_hybrid_ops(OpRegistry& registry) {
  OpDef exchange = exchange_op("braid.AllToAll", Lane::Comm);
  exchange.min_inputs = 1;
  exchange.infer = infer_exchange;
  exchange.cpu = prepare_host_exchange;
  registry.add(std::move(exchange));

  OpDef served;
  served.name = "braid.ServedRows";
  served.traits = moves();
  served.min_inputs = served.max_inputs = 1;
  served.infer = [](InferContext& c) {
    if (!c.shape(0).has_rank()) return c.output(DType::Float32, Shape::unknown_rank());
    std::vector<std::int64_t> dims(c.shape(0).dims().begin(), c.shape(0).dims().end());
    dims.push_back(c.attr("dim", std::int64_t{1}));
    c.output(DType::Float32, Shape(std::move(dims)));
  };
  served.no_gradient_reason = "is for evaluations";
  served.cpu = prepare_served_rows;
  served.stateful = true;
  served.lane = Lane::Pull;
  registry.add(std::move(served));
  register_hybrid_device_kernels(registry);
}

}  // namespace braid::worker
