// Which device a worker computes on: what the job says, and one visible GPU for each process of a host, by
// the process's number among them; of MIRRORED one for each replica of each. Servers open none. Thread rule:
// called by one thread at start-up.
#pragma once

#include <memory>
#include <optional>

#include "engine/device/accelerator.h"
#include "launch/cluster_spec.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// AUTO becomes CUDA where this build has it and there is a device for each worker, and for strategy.backend
/// NCCL, else CPU. A cluster of one host falls back to the CPU as a whole; which process of several hosts
/// lacks a device is not known to the others, so there it is an error in open_device(). Throws:
/// InvalidArgument for NCCL with device CPU.
void resolve_device(proto::Job& job, const launch::ClusterSpec& cluster);

/// Replicas of MIRRORED in this process, where each of several takes the same share of the host's GPUs; of
/// other strategies 1. REQUIRES: resolve_device() was called.
int replicas_of_process(const proto::Job& job, const launch::ClusterSpec& cluster);

/// Which visible GPU this process's replica takes; nothing on the CPU. REQUIRES and throws as open_device().
std::optional<int> device_ordinal(const proto::Job& job, const launch::ClusterSpec& cluster, int replica = 0);

/// The device of this process's replica; null for CPU. REQUIRES: resolve_device() was called. Throws:
/// InvalidArgument when there is no usable one, or the host has fewer than processes and replicas need.
std::shared_ptr<Accelerator> open_device(const proto::Job& job, const launch::ClusterSpec& cluster,
                                         int replica = 0);

}  // namespace braid::worker
