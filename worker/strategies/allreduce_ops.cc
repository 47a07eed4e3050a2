#include "worker/strategies/allreduce_ops.h"

#include <cstring>
#include <numeric>

#include "comm/communicator.h"
#include "engine/ir/op.h"
#include "engine/ops/common/halves.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/gathered_rows.h"
#include "worker/strategies/ordered_sum.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

/// Of gradients that travel as halves, or whose order matters (ordered_sum.h).
PreparedKernel prepare_host_ordered_sum(const PrepareContext& context, comm::Communicator& communicator,
                                        std::chrono::nanoseconds deadline) {
  std::vector<std::int64_t> counts;
  for (const OutputInfo& input : context.inputs) {
    if (input.dtype != context.inputs[0].dtype) context.fail("gradients must have one type");
    counts.push_back(input.shape.elements());
  }
  const OrderedSum sum(std::move(counts), communicator.size(), context.inputs[0].dtype);
  PreparedKernel kernel;
  kernel.scratch_bytes = sum.scratch_bytes();
  kernel.run = [&communicator, deadline, sum](const KernelArgs& args) {
    sum.run(communicator, args.inputs, args.outputs, args.scratch, args.stream, args.wait->at_most(deadline));
  };
  return kernel;
}

PreparedKernel prepare_host_all_reduce(const PrepareContext& context) {
  auto& communicator = require_service<comm::Communicator>(context, "communicator");
  const auto deadline = require_service<StepServices>(context, "worker").peer_deadline;
  if (is_half(context.inputs[0].dtype) || context.attr(kRankOrder, false))
    return prepare_host_ordered_sum(context, communicator, deadline);
  std::vector<std::int64_t> counts;
  std::int64_t total = 0;
  for (const OutputInfo& input : context.inputs) {
    if (input.dtype != DType::Float32) context.fail("gradients must be float32");
    counts.push_back(input.shape.elements());
    total += counts.back();
  }
  PreparedKernel kernel;
  kernel.scratch_bytes = counts.size() == 1 ? 0 : static_cast<std::size_t>(total) * sizeof(float);
  kernel.run = [&communicator, deadline, counts, total](const KernelArgs& args) {
    const WaitContext wait = args.wait->at_most(deadline);
    if (counts.size() == 1) {
      communicator.all_reduce(args.inputs[0], args.outputs[0], total, DType::Float32, comm::ReduceOp::Sum,
                              args.stream, wait);
      return;
    }
    auto* bucket = static_cast<float*>(args.scratch);
    std::int64_t at = 0;
    for (std::size_t i = 0; i < counts.size(); at += counts[i++])
      std::memcpy(bucket + at, args.inputs[i], static_cast<std::size_t>(counts[i]) * sizeof(float));
    communicator.all_reduce(bucket, bucket, total, DType::Float32, comm::ReduceOp::Sum, args.stream, wait);
    at = 0;
    for (std::size_t i = 0; i < counts.size(); at += counts[i++])
      std::memcpy(args.outputs[i], bucket + at, static_cast<std::size_t>(counts[i]) * sizeof(float));
  };
  return kernel;
}

/// `rows`: of each rank, or empty where all have as many.
Shape gathered(Shape shape, std::int64_t world, const std::vector<std::int64_t>& rows) {
  if (shape.has_rank() && shape.rank() > 0 && shape[0] != Shape::kUnknown)
    shape.set_dim(0, rows.empty() ? shape[0] * world : std::accumulate(rows.begin(), rows.end(), 0LL));
  return shape;
}

PreparedKernel prepare_host_all_gather_rows(const PrepareContext& context) {
  auto& communicator = require_service<comm::Communicator>(context, "communicator");
  const auto deadline = require_service<StepServices>(context, "worker").peer_deadline;
  const GatheredRows indices(context, 0), values(context, 1);
  PreparedKernel kernel;
  kernel.scratch_bytes = indices.scratch_bytes() + values.scratch_bytes();
  kernel.run = [&communicator, deadline, indices, values](const KernelArgs& args) {
    const WaitContext wait = args.wait->at_most(deadline);
    const auto copy = [](void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); };
    indices.run(communicator, args, args.scratch, copy, wait);
    values.run(communicator, args, static_cast<char*>(args.scratch) + indices.scratch_bytes(), copy, wait);
  };
  return kernel;
}

PreparedKernel prepare_host_stop_vote(const PrepareContext& context) {
  PreparedKernel kernel;
  kernel.run = [&services = require_service<StepServices>(context, "worker")](const KernelArgs& args) {
    *args.out<float>(0) = services.stop_vote();
  };
  return kernel;
}

}  // namespace

void register_allreduce_ops(OpRegistry& registry) {
  OpDef reduce = exchange_op("braid.AllReduce", Lane::Comm);
  reduce.traits = computes().output_list();
  reduce.min_inputs = 1;
  reduce.infer = [](InferContext& context) {
    for (int i = 0; i < context.inputs(); ++i) context.output(context.dtype(i), context.shape(i));
  };
  reduce.cpu = prepare_host_all_reduce;
  registry.add(std::move(reduce));

  OpDef gather = exchange_op("braid.AllGatherRows", Lane::Comm);
  gather.traits = moves().names({"indices", "values"});
  gather.min_inputs = gather.max_inputs = 2;
  gather.infer = [](InferContext& context) {
    const auto world = context.attr<std::int64_t>("world", 1);
    using Ints = std::vector<std::int64_t>;
    context.output(context.dtype(0), gathered(context.shape(0), world, context.attr<Ints>(kIndexRows, {})));
    context.output(context.dtype(1), gathered(context.shape(1), world, context.attr<Ints>(kValueRows, {})));
  };
  gather.cpu = prepare_host_all_gather_rows;
  registry.add(std::move(gather));

  OpDef vote;
  vote.name = "braid.StopVote";
  vote.traits = computes();
  vote.infer = [](InferContext& context) { context.output(DType::Float32, Shape{}); };
  vote.no_gradient_reason = "says what this process was asked to do";
  vote.cpu = prepare_host_stop_vote;
  vote.stateful = true;
  registry.add(std::move(vote));
  register_allreduce_device_kernels(registry);
}

}  // namespace braid::worker
