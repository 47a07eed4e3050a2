// A parameter server of a job, from its start to the job's end.
#pragma once

#include <memory>

#include "launch/cluster_spec.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

class StopFlag;

/// Serves until the job ends; the exit code (0, 143 when it or a worker was asked to stop, 138 when the job
/// cannot go on). Throws: what a start throws, DeadlineExceeded when the job's processes do not meet.
int run_server(const proto::Job& job, launch::ClusterSpec cluster, const std::shared_ptr<StopFlag>& stop);

}  // namespace braid::worker
