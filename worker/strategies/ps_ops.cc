#include "worker/strategies/ps_ops.h"

#include "engine/ir/op.h"
#include "ps/client/ps_client.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {

static_assert(kFinishVote == ps::kFinishVote);
namespace {

using Ints = std::vector<std::int64_t>;

PreparedKernel prepare_pull(const PrepareContext& context) {
  ps::PsClient& client = require_service<ps::PsClient>(context, "parameter-server client");
  const auto deadline = require_service<StepServices>(context, "worker").peer_deadline;
  const Ints tables = context.attr<Ints>("tables", {});
  const bool versioned = context.attr<bool>("versioned", false), insert = context.attr<bool>("insert", true),
             votes = context.attr<bool>("votes", false);
  struct Input {
    int table;
    std::int64_t elements;
    bool dense;
  };
  std::vector<Input> inputs;
  const std::size_t sparse = context.outputs.size() - (votes ? 1 : 0);
  for (std::size_t i = 0; i < context.inputs.size(); ++i)
    inputs.push_back({static_cast<int>(tables[i]), context.inputs[i].shape.elements(),
                      i + sparse < context.inputs.size()});
  PreparedKernel kernel;
  kernel.run_async = [&client, deadline, inputs, versioned, insert, votes](const KernelArgs& args,
                                                                           Completion done) {
    ps::PullRequest request;
    std::size_t output = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto count = static_cast<std::size_t>(inputs[i].elements);
      if (inputs[i].dense)
        request.dense.push_back({inputs[i].table, {static_cast<float*>(args.inputs[i]), count}});
      else
        request.sparse.push_back({inputs[i].table,
                                  {static_cast<const std::int64_t*>(args.inputs[i]), count},
                                  static_cast<float*>(args.outputs[output++])});
    }
    request.min_version = versioned ? args.params->step : 0;
    request.insert = insert;
    if (votes) request.stop_vote = static_cast<float*>(args.outputs[output]);
    client.pull_async(std::move(request), std::move(done), args.wait->at_most(deadline));
  };
  return kernel;
}

PreparedKernel prepare_push(const PrepareContext& context) {
  ps::PsClient& client = require_service<ps::PsClient>(context, "parameter-server client");
  const auto deadline = require_service<StepServices>(context, "worker").peer_deadline;
  const Ints dense = context.attr<Ints>("dense_tables", {}), sparse = context.attr<Ints>("sparse_tables", {});
  const auto sequence = static_cast<std::uint32_t>(context.attr<std::int64_t>("sequence", 0));
  const auto examples = static_cast<std::uint32_t>(context.attr<std::int64_t>("examples", 0));
  const bool votes = context.attr<bool>("votes", false);
  std::vector<std::size_t> counts;
  for (const OutputInfo& input : context.inputs)
    counts.push_back(static_cast<std::size_t>(input.shape.elements()));
  for (std::size_t k = 0; k < sparse.size(); ++k)
    if (context.inputs[dense.size() + 2 * k].dtype != DType::Int64)
      context.fail("keys of sparse tables must be int64");
  PreparedKernel kernel;
  kernel.run_async = [&client, deadline, dense, sparse, sequence, examples, votes, counts](
                         const KernelArgs& args, Completion done) {
    ps::PushRequest request;
    request.step = args.params->step;
    request.sequence = sequence;
    request.examples = examples;
    request.params = {args.params->learning_rate, args.params->grad_scale, args.params->step};
    for (std::size_t i = 0; i < dense.size(); ++i)
      request.dense.push_back(
          {static_cast<int>(dense[i]), {static_cast<const float*>(args.inputs[i]), counts[i]}});
    for (std::size_t k = 0; k < sparse.size(); ++k) {
      const std::size_t i = dense.size() + 2 * k;
      request.sparse.push_back({static_cast<int>(sparse[k]),
                                {static_cast<const std::int64_t*>(args.inputs[i]), counts[i]},
                                static_cast<const float*>(args.inputs[i + 1])});
    }
    const float vote =
        votes ? *static_cast<const float*>(args.inputs[dense.size() + 2 * sparse.size()]) : 0.0F;
    request.votes_to_stop = vote >= kLeastStopVote;
    request.votes_to_finish = vote == kFinishVote;
    client.push_async(std::move(request), std::move(done), args.wait->at_most(deadline));
  };
  return kernel;
}

void infer_pull(InferContext& context) {
  const Ints dims = context.attr<Ints>("dims", {});
  const int first = context.inputs() - static_cast<int>(dims.size());
  for (std::size_t k = 0; k < dims.size(); ++k) {
    const Shape& ids = context.shape(first + static_cast<int>(k));
    if (!ids.has_rank()) {
      context.output(DType::Float32, Shape::unknown_rank());
      continue;
    }
    std::vector<std::int64_t> rows(ids.dims().begin(), ids.dims().end());
    rows.push_back(dims[k]);
    context.output(DType::Float32, Shape(std::move(rows)));
  }
  if (context.attr<bool>("votes", false)) context.output(DType::Float32, Shape{});
}

}  // namespace

void register_ps_ops(OpRegistry& registry) {
  OpDef pull = exchange_op("braid.PsPull", Lane::Pull);
  pull.infer = infer_pull;
  pull.cpu = prepare_pull;
  pull.further_handles = Access::Write;
  registry.add(std::move(pull));
  OpDef push = exchange_op("braid.PsPush", Lane::Push);
  push.infer = [](InferContext&) {};
  push.cpu = prepare_push;
  registry.add(std::move(push));
}

}  // namespace braid::worker
