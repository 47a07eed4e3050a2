// What every role of a job begins with: its page, its waits for others, its place on the host.
#pragma once

#include <chrono>

#include "base/wait_context.h"
#include "launch/cluster_spec.h"
#include "worker/watch/monitor.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

class StopFlag;

std::chrono::milliseconds to_ms(double seconds);

/// Its page is there from the start, also while it waits for its peers.
MonitorOptions monitor_options(const proto::Job& job, const launch::ClusterSpec& cluster);

/// Says where the process can be watched, and learns where its peers are.
void open_page(const proto::Job& job, const launch::ClusterSpec& cluster, Monitor& monitor);

/// Until all processes have found each other, or this one is asked to stop.
WaitContext start_wait(const proto::Job& job, const StopFlag& stop);

/// Those of `tasks` that are on the host of this process, where the cluster says where they are.
int on_this_host(const launch::ClusterSpec& cluster, const launch::ClusterSpec::Job& tasks);

/// The processes of this job that are busy on this host.
int processes_of_host(const launch::ClusterSpec& cluster);

}  // namespace braid::worker
