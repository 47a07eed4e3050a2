#include "worker/evaluation/forward_job.h"

#include <algorithm>

#include "base/cpu.h"
#include "proto/job.pb.h"
#include "worker/checkpoint/stored_variables.h"
#include "worker/process/device.h"
#include "worker/process/op_libraries.h"

namespace braid::worker {

proto::Job without_peers(proto::Job job) {
  job.mutable_strategy()->set_kind(proto::Strategy::LOCAL);
  return job;
}

void restore_variables(const CheckpointInfo& checkpoint, std::uint64_t seed, const Graph& graph,
                       Runtime& runtime) {
  const StoredVariables stored(checkpoint, seed);
  for (const VariableInfo& variable : list_variables(graph))
    runtime.variables().write(variable.name, stored.value(graph, variable));
}

ForwardJob::ForwardJob(const proto::Job& asked) : job(std::make_unique<proto::Job>(without_peers(asked))) {
  register_strategy_ops();
  load_op_libraries(*job);
  resolve_device(*job, {});
  RuntimeOptions options;
  options.device = open_device(*job, {});
  options.device_graphs = job->runtime().graphs();
  options.device_check = job->runtime().check_kernels();
  const int threads = static_cast<int>(job->runtime().intra_op_threads());
  options.intra_op_threads = threads > 0 ? threads : std::max(1, usable_cores());
  runtime = std::make_unique<Runtime>(options);
  strategy = make_strategy(*job, *runtime, {});
}

ForwardJob::~ForwardJob() = default;

}  // namespace braid::worker
