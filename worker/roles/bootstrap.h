// How the processes of a job find each other, before the first step: addresses that only MPI can tell, the
// rendezvous that the leader hosts, the communicator of ALLREDUCE and HYBRID, the client of PS, and both of
// PS_ALLREDUCE. Throws (all): DeadlineExceeded and Unavailable naming who is missing; InvalidArgument for a
// cluster that does not fit the strategy.
#pragma once

#include <memory>
#include <string>

#include "base/wait_context.h"
#include "launch/cluster_spec.h"
#include "worker/strategies/strategy.h"

namespace braid::proto {
class Job;
}

namespace braid {
class Accelerator;
}

namespace braid::comm {
class Communicator;
struct Security;
}  // namespace braid::comm

namespace braid::worker {

class ElasticWorld;

/// Refuses clusters that the strategy cannot use, e.g. PS without a server, or LOCAL with two workers.
void check_cluster(const proto::Job& job, const launch::ClusterSpec& cluster);

/// "host:port" to bind for this task: all interfaces, for IPv4 and IPv6, with the port of its address, or a
/// free port when it has none yet.
std::string listen_address(const launch::ClusterSpec& cluster);
/// ":0", or ":4100-4110" of strategy.data_ports: where a process listens for data, behind its host.
std::string data_ports(const proto::Job& job);

/// Under mpirun without TF_CONFIG addresses are not known: every rank tells the others `own` ("host:port",
/// empty when it serves nothing) over MPI, and the spec is filled. A collective operation of all ranks; does
/// nothing when addresses are known.
void exchange_addresses(launch::ClusterSpec& cluster, const std::string& own, const WaitContext& wait);

/// The host under which the other tasks reach this one: 127.0.0.1 when all ranks are of this host, else its
/// name.
std::string own_host(const launch::ClusterSpec& cluster);

/// What a worker talks through; `peers` and what they need are alive together.
class Bootstrap {
 public:
  /// `device`: this worker's, or null. `replicas`: of MIRRORED in each process; above 1 peers() are of none
  /// of them.
  Bootstrap(const proto::Job& job, launch::ClusterSpec cluster, const Accelerator* device,
            const WaitContext& wait, int replicas = 1);
  ~Bootstrap();
  const Peers& peers() const { return peers_; }
  /// Of this process's replica, whose rank is behind those of earlier processes and replicas. Each replica
  /// calls it once, on its thread: it returns when all of the job have come. They go before this object.
  /// REQUIRES: several replicas.
  Peers replica(int index, const Accelerator* device, const WaitContext& wait) const;
  /// Of an elastic job: what makes its worlds, and fills the peers for each; else null.
  ElasticWorld* elastic() const;
  /// Between the hosts of workers that has_homes_of_rows() names; else null.
  const std::shared_ptr<comm::Communicator>& homes() const { return homes_; }

 private:
  struct Impl;
  void begin_elastic(const proto::Job& job, const launch::ClusterSpec& cluster,
                     const comm::Security& security, int device);

  std::unique_ptr<Impl> impl_;
  Peers peers_;
  std::shared_ptr<comm::Communicator> homes_;
};

}  // namespace braid::worker
