#include "worker/session/session_peers.h"

#include <optional>

#include "base/wait_context.h"
#include "comm/communicator.h"
#include "engine/ir/op.h"
#include "launch/cluster_spec.h"
#include "proto/job.pb.h"
#include "worker/roles/bootstrap.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

proto::Job job_of_sessions(std::chrono::milliseconds timeout) {
  proto::Job job;
  job.set_name("session");
  job.mutable_strategy()->set_kind(proto::Strategy::ALLREDUCE);
  job.mutable_strategy()->set_backend(proto::Strategy::RING);
  job.mutable_strategy()->set_deadline_seconds(static_cast<double>(timeout.count()) / 1000);
  return job;
}

}  // namespace

struct SessionPeers::Impl {
  std::optional<Bootstrap> bootstrap;
  std::shared_ptr<StepServices> services = std::make_shared<StepServices>();
  std::chrono::milliseconds timeout;
  comm::Communicator& communicator() const { return *bootstrap->peers().communicator; }
  WaitContext wait() const { return WaitContext::with_timeout(timeout); }
};

SessionPeers::SessionPeers(const std::string& cluster, const std::string& task,
                           std::chrono::milliseconds timeout, std::stop_token stop)
    : impl_(std::make_unique<Impl>()) {
  launch::LaunchFlags flags;
  flags.cluster = cluster;
  flags.task = task;
  const launch::ClusterSpec spec = launch::resolve_cluster({}, flags);
  const proto::Job job = job_of_sessions(timeout);
  check_cluster(job, spec);
  impl_->timeout = timeout;
  impl_->services->peer_deadline = timeout;
  impl_->services->stop = std::make_shared<StopFlag>();
  impl_->bootstrap.emplace(job, spec, nullptr, WaitContext::with_timeout(timeout, std::move(stop)));
}

SessionPeers::~SessionPeers() = default;

int SessionPeers::rank() const { return impl_->bootstrap->peers().rank; }
int SessionPeers::world() const { return impl_->bootstrap->peers().world; }

Tensor SessionPeers::broadcast(const Tensor& value) const {
  Tensor copy = value.clone();
  impl_->communicator().broadcast(copy.raw(), copy.elements(), copy.dtype(), 0, StreamRef::host(),
                                  impl_->wait());
  return copy;
}

void SessionPeers::barrier() const { impl_->communicator().barrier(impl_->wait()); }

void SessionPeers::provide(Services& services) const {
  services.provide(impl_->bootstrap->peers().communicator);
  services.provide(impl_->services);
}

void SessionPeers::abort() const { impl_->communicator().abort(); }

}  // namespace braid::worker
