#include "worker/roles/role_setup.h"

#include <algorithm>
#include <string>

#include "base/env.h"
#include "base/log.h"
#include "proto/job.pb.h"
#include "worker/process/security.h"
#include "worker/process/stop_signal.h"
#include "worker/watch/page_access.h"

namespace braid::worker {
namespace {

std::string http_address(const proto::Job& job) {
  return env_string("BRAID_HTTP").value_or(job.metrics().listen());
}

}  // namespace

std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

MonitorOptions monitor_options(const proto::Job& job, const launch::ClusterSpec& cluster) {
  MonitorOptions options;
  options.task = task_name(cluster.task);
  options.role = cluster.task.type == launch::TaskType::Chief ? "worker" : job_name(cluster.task.type);
  options.job = job.name();
  options.listen = http_address(job);
  options.leads = cluster.is_leader();
  options.refuse = page_access(job, options.listen);
  return options;
}

void open_page(const proto::Job& job, const launch::ClusterSpec& cluster, Monitor& monitor) {
  if (!monitor.page()) return;
  log_info("metrics: http://{}/metrics", monitor.address());
  monitor.page()->set_peers(page_peers(cluster, http_address(job)));
}

WaitContext start_wait(const proto::Job& job, const StopFlag& stop) {
  return WaitContext::with_timeout(to_ms(job.strategy().start_deadline_seconds()), stop.token());
}

int on_this_host(const launch::ClusterSpec& cluster, const launch::ClusterSpec::Job& tasks) {
  const auto host_of = [](const std::string& address) { return address.substr(0, address.rfind(':')); };
  const launch::ClusterSpec::Job& own_job = cluster.job(cluster.task.type);
  const auto own = own_job.find(cluster.task.index);
  const std::string host = own == own_job.end() ? std::string() : host_of(own->second);
  return static_cast<int>(
      std::ranges::count_if(tasks, [&](const auto& task) { return host_of(task.second) == host; }));
}

int processes_of_host(const launch::ClusterSpec& cluster) {
  const int workers = on_this_host(cluster, cluster.chief) + on_this_host(cluster, cluster.worker);
  return std::max(workers, cluster.local_world) + on_this_host(cluster, cluster.ps);
}

}  // namespace braid::worker
