// The rendezvous over gRPC: a server, hosted by the chief (or by rank 0), and clients. A waiting Get or
// Barrier holds a callback on the server and no thread, so any number may wait.
//
// A host that is not up yet, or is restarted, is tried again until the deadline; then DeadlineExceeded names
// its address.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/store.h"
#include "comm/transport/transport.h"

namespace grpc {
class ServerBuilder;
}

namespace braid::comm {

struct RendezvousServerOptions {
  std::string listen = "0.0.0.0:0";  // "host:port", port 0 picks a free one
  Security security{};
  /// Adds other services to the same server and port. They outlive the server, which keeps this function.
  std::function<void(grpc::ServerBuilder&)> add_services{};
};

class RendezvousServer {
 public:
  /// Throws: Unavailable when the address cannot be bound, InvalidArgument.
  static std::unique_ptr<RendezvousServer> start(RendezvousServerOptions options);
  /// Stops.
  virtual ~RendezvousServer() = default;
  /// "host:port" with the port that was bound.
  virtual std::string address() const = 0;
  /// What it stores; for the host's own in-process rendezvous.
  virtual std::shared_ptr<RendezvousStore> store() const = 0;
  /// Fails the waits in progress and stops serving within `wait`. Idempotent.
  virtual void stop(const WaitContext& wait) = 0;
};

/// Does not connect yet.
std::unique_ptr<Rendezvous> make_grpc_rendezvous(const std::string& address, RendezvousScope scope,
                                                 const Security& security = {});

}  // namespace braid::comm
