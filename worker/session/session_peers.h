// The workers of a cluster whose programs run sessions, one each, in which collectives meet (braid.AllReduce,
// braid.AllGatherRows): between-graph replication, in which each worker builds the same graph. All workers
// run the same collectives in the same order; a worker that does not come is named by the deadline. Thread
// rule: one call at a time, none while a run with collectives goes on.
#pragma once

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>

#include "engine/ir/tensor.h"

namespace braid {
class Services;
}

namespace braid::worker {

class SessionPeers {
 public:
  /// cluster: "chief=host:port;worker=host:port,host:port", without servers. task: "worker:1". Waits for all;
  /// `timeout` also bounds each later wait for the others. Throws: InvalidArgument for a cluster that is none
  /// or does not list the task, DeadlineExceeded naming who is missing, Cancelled once `stop` is requested.
  SessionPeers(const std::string& cluster, const std::string& task, std::chrono::milliseconds timeout,
               std::stop_token stop = {});
  ~SessionPeers();

  int rank() const;
  int world() const;
  /// The leader's value, which is of the same type and shape everywhere. Throws: Unavailable,
  /// DeadlineExceeded.
  Tensor broadcast(const Tensor& value) const;
  /// Returns when all workers have called it.
  void barrier() const;
  /// What collectives of a runtime need.
  void provide(Services& services) const;
  /// Waits of this process for others end soon. Safe from any thread.
  void abort() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid::worker
