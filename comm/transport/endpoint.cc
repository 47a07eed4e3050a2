#include "comm/transport/endpoint.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>

namespace braid::comm {

std::string endpoint_name(const boost::asio::generic::stream_protocol::endpoint& endpoint) {
  char host[INET6_ADDRSTRLEN] = "?";
  switch (endpoint.protocol().family()) {
    case AF_INET: {
      auto* address = reinterpret_cast<const sockaddr_in*>(endpoint.data());
      inet_ntop(AF_INET, &address->sin_addr, host, sizeof(host));
      return fmt::format("{}:{}", host, ntohs(address->sin_port));
    }
    case AF_INET6: {
      auto* address = reinterpret_cast<const sockaddr_in6*>(endpoint.data());
      if (IN6_IS_ADDR_V4MAPPED(&address->sin6_addr)) {  // a peer that a socket for both families took
        inet_ntop(AF_INET, &address->sin6_addr.s6_addr[12], host, sizeof(host));
        return fmt::format("{}:{}", host, ntohs(address->sin6_port));
      }
      inet_ntop(AF_INET6, &address->sin6_addr, host, sizeof(host));
      return fmt::format("[{}]:{}", host, ntohs(address->sin6_port));
    }
    default: {
      auto* address = reinterpret_cast<const sockaddr_un*>(endpoint.data());
      auto path_bytes = endpoint.size() - offsetof(sockaddr_un, sun_path);
      return "unix:" + std::string(address->sun_path, strnlen(address->sun_path, path_bytes));
    }
  }
}

void configure_socket(int socket) {
  // Refused options cost speed, not correctness, so failures are not errors.
  int one = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
}

}  // namespace braid::comm
