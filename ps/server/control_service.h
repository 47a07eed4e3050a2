// The control plane's end at the server: the gRPC service of proto/ps.proto on a ServerCore, and beside it
// the queue of batches (queue_service.h). Short calls are answered on gRPC's threads; those that read or
// write files, or wait for a round, on one thread of the service. Thread rule: start, stop and the destructor
// by one thread.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "comm/transport/transport.h"
#include "ps/server/server_core.h"

namespace braid::ps {

/// How a job has ended, on the word of a worker.
enum class JobEnd {
  Done,
  Terminated,  // stopped by SIGTERM, and to be resumed
  Lost,        // another server is lost, and a part of the job's state with it
};

struct ControlServiceOptions {
  std::string listen;  // "host:port", port 0 picks a free one
  int index = 0;
  int data_port = 0;
  std::string unix_path;
  bool shared_memory = false;                 // carries the bytes of that socket's connections
  std::chrono::milliseconds deadline{30000};  // told to workers
  comm::Security security;
  /// The job's own directory: checkpoints go and come there and nowhere else. Empty: none are taken.
  std::filesystem::path checkpoints;
  /// Called on a gRPC thread when a worker asks for the end. Must not block.
  std::function<void(JobEnd)> on_shutdown;
};

class ControlService {
 public:
  /// Throws: Unavailable when the address cannot be bound. REQUIRES: `core` outlives the object.
  ControlService(ServerCore& core, ControlServiceOptions options);
  ~ControlService();
  ControlService(const ControlService&) = delete;
  ControlService& operator=(const ControlService&) = delete;

  /// "host:port" with the port that was bound.
  std::string address() const;
  /// Cancels what waits, ends calls, joins. Idempotent.
  void stop(const WaitContext& wait);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid::ps
