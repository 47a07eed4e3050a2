#include "launch/port_reservation.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace braid::launch {

PortReservation::PortReservation(int count) {
  const int on = 1;
  for (int i = 0; i < count; ++i) {
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* name = reinterpret_cast<sockaddr*>(&address);
    // The options come after the bind: with them before, two reservations could be given the same port.
    if (!socket.is_open() || ::bind(socket.get(), name, size) != 0 ||
        ::getsockname(socket.get(), name, &size) != 0 ||
        ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0)
      throw Unavailable(fmt::format("[launch] cannot reserve a port on 127.0.0.1: {}", std::strerror(errno)));
    addresses_.push_back(fmt::format("127.0.0.1:{}", ntohs(address.sin_port)));
    sockets_.push_back(std::move(socket));
  }
}

}  // namespace braid::launch
