// The listening socket of a gRPC server. gRPC itself accepts without a bound, so that whoever reaches the
// port could take all descriptors of the process, and its memory, before any connection has proved itself.
// Here a connection that comes while too many are new, or while descriptors run short, is closed at once; who
// belongs to the job tries again. Thread rule: one thread; connections are taken by a thread of its own.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "comm/transport/security.h"
#include "comm/transport/socket.h"

namespace grpc {
class ServerBuilder;
namespace experimental {
class ExternalConnectionAcceptor;
}
}  // namespace grpc

namespace braid::comm {

class GrpcListener {
 public:
  /// Binds "host:port", port 0: a free one, and gives `builder` where its connections come from.
  /// Throws: Unavailable with the address and the reason; InvalidArgument for TLS files that cannot be read.
  GrpcListener(grpc::ServerBuilder& builder, const std::string& listen, const Security& security);
  ~GrpcListener();  // stop()
  GrpcListener(const GrpcListener&) = delete;
  GrpcListener& operator=(const GrpcListener&) = delete;

  /// REQUIRES: the server was built, and is not shut down before stop().
  void start();
  /// Nobody is taken any more, and the port is free.
  void stop();
  /// As it was asked for, with the port that it has.
  const std::string& address() const { return address_; }

 private:
  void accept(const std::stop_token& stop);

  ListenSocket socket_;
  const std::string address_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::jthread thread_;
};

}  // namespace braid::comm
