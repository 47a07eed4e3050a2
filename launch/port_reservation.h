// Free TCP ports of 127.0.0.1, reserved while the object lives.
//
// Each port is held by a socket that is bound and does not listen, with SO_REUSEADDR and SO_REUSEPORT. Linux
// then gives the port to nobody who asks for any free one, yet lets a server that sets either option (gRPC
// and Asio do) bind and listen on it. So there is no gap between choosing a port and the server's bind; what
// stays possible is that a foreign program asks for just this number with SO_REUSEADDR. A server that sets
// neither option cannot use the port.
#pragma once

#include <string>
#include <vector>

#include "launch/file_descriptor.h"

namespace braid::launch {

class PortReservation {
 public:
  /// Throws: Unavailable when there are not so many free ports.
  explicit PortReservation(int count);
  /// "127.0.0.1:40321"
  const std::vector<std::string>& addresses() const { return addresses_; }

 private:
  std::vector<FileDescriptor> sockets_;
  std::vector<std::string> addresses_;
};

}  // namespace braid::launch
