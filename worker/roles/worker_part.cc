#include "worker/roles/worker_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/cpu.h"
#include "base/log.h"
#include "proto/job.pb.h"
#include "worker/elastic/elastic_world.h"
#include "worker/job/unused_fields.h"
#include "worker/roles/role_setup.h"
#include "worker/run/trainer.h"
#include "worker/strategies/step_services.h"
#include "worker/watch/monitor.h"

namespace braid::worker {
namespace {

/// Usable cores shared by what computes on this host.
int intra_op_threads(const proto::Job& job, const launch::ClusterSpec& cluster, int replicas) {
  if (job.runtime().intra_op_threads() > 0) return static_cast<int>(job.runtime().intra_op_threads());
  return std::max(1, usable_cores() / (std::max(1, cluster.local_world) * replicas));
}

}  // namespace

RuntimeOptions runtime_options(const proto::Job& job, const launch::ClusterSpec& cluster, int replicas) {
  for (const std::string& setting : unused_device_fields(job, SettingsFor::Training))
    log_warning("{}", setting);
  RuntimeOptions options;
  options.device_graphs = job.runtime().graphs();
  options.device_check = job.runtime().check_kernels();
  options.intra_op_threads = intra_op_threads(job, cluster, replicas);
  return options;
}

WorkerPart::WorkerPart(const proto::Job& job, const RuntimeOptions& options, PartMonitors monitors,
                       const std::shared_ptr<StopFlag>& stop, ElasticWorld* elastic)
    : job_(job), monitor_(monitors.steps), stop_(stop), runtime_(options) {
  if (options.device) device_watch_.emplace(job.metrics(), options.device, monitors.device, runtime_.trace());
  auto services = std::make_shared<StepServices>();
  services->peer_deadline = to_ms(job.strategy().deadline_seconds());
  services->stop = stop;
  if (elastic) elastic->vote_through(*services);
  runtime_.services().provide(std::move(services));
}

TrainResult WorkerPart::train(const TrainOptions& options, const Peers& peers) {
  return worker::train(job_, options, peers, runtime_, monitor_, *stop_);
}

TrainOptions train_options(const RoleOptions& options) {
  TrainOptions its;
  its.data_dir = options.data_dir;
  its.start = options.start;
  its.accepts_changes = options.accepts_changes;
  its.hooks = options.hooks;
  its.role = fmt::format("{}-{}", job_name(options.cluster.task.type), options.cluster.task.index);
  return its;
}

}  // namespace braid::worker
