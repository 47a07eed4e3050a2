// A parameter server process's server: control plane (gRPC), data plane (TCP and, for workers of this host,
// shared memory or a Unix socket), the core, and the timer that ends waits for lost workers. Thread rule:
// start and destruction by one thread; the rest from any thread.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/wait_context.h"
#include "comm/transport/transport.h"

namespace braid {
class MetricsRegistry;
}

namespace braid::ps {

class ServerCore;
enum class JobEnd;

/// Table threads for a server on a host with `cores` for this job's processes, which it shares with
/// `servers` - 1 others, and with workers or not: an equal part of the cores for each server and one for all
/// workers together; of more than two cores one is left to connections.
int auto_table_threads(int cores, int servers, bool workers);

class PsServer {
 public:
  struct Options {
    int index = 0;
    int count = 1;  // 0: as the first worker says
    std::string grpc_listen = "0.0.0.0:0";
    std::string data_listen = "0.0.0.0:0";
    std::string
        unix_socket{};  // path of the same-host socket, done without when it cannot be made; empty: none
    bool shared_memory = true;  // carries the bytes of workers of this host, over that socket
    int table_threads = 0;      // 0: auto_table_threads() of a server that is alone on its host
    int io_threads = 1;
    std::chrono::milliseconds deadline{30000};  // a worker silent or gone for this long is given up
    MetricsRegistry* metrics = nullptr;         // outlives the server
    comm::Security security{};
    std::filesystem::path checkpoints{};  // the job's own directory, see ControlServiceOptions
    bool apply_updates = true;            // false: pushes are thrown away, to measure transport
  };

  /// Throws: Unavailable when an address cannot be bound; InvalidArgument for bad options.
  static std::unique_ptr<PsServer> start(Options options);
  ~PsServer();
  PsServer(const PsServer&) = delete;
  PsServer& operator=(const PsServer&) = delete;

  /// "host:port" with the ports that were bound.
  std::string grpc_address() const;
  std::string data_address() const;

  /// Returns when a worker asked for the end, or stop() was called. Throws: Cancelled, DeadlineExceeded.
  void wait_shutdown(const WaitContext& wait);
  /// How the job has ended, as workers said; nothing: it has not, or stop() was called.
  std::optional<JobEnd> job_end() const;
  /// Ends calls and threads. Idempotent.
  void stop(const WaitContext& wait);

  ServerCore& core();

 private:
  struct Impl;
  explicit PsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid::ps
