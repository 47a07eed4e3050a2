#include "comm/transport/address.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <charconv>

#include "base/error.h"

namespace braid::comm {
namespace {

InvalidArgument bad_address(const std::string& text, const char* reason) {
  return InvalidArgument(fmt::format("[transport] address '{}': {}", text, reason));
}

}  // namespace

Address parse_address(const std::string& text) {
  constexpr std::string_view kUnix = "unix:";
  if (text.starts_with(kUnix)) {
    Address address{true, text.substr(kUnix.size()), {}};
    if (address.host.empty()) throw bad_address(text, "expected a path after 'unix:'");
    if (address.host.size() >= sizeof(sockaddr_un::sun_path))
      throw bad_address(text, "the path is too long for a Unix socket");
    return address;
  }
  auto colon = text.rfind(':');
  if (colon == std::string::npos) throw bad_address(text, "expected host:port or unix:/path");
  Address address{false, text.substr(0, colon), text.substr(colon + 1)};
  if (address.host.starts_with('[') && address.host.ends_with(']'))
    address.host = address.host.substr(1, address.host.size() - 2);
  unsigned port = 0;
  auto end = address.port.data() + address.port.size();
  auto parsed = std::from_chars(address.port.data(), end, port);
  if (parsed.ec != std::errc{} || parsed.ptr != end || port > 65535)
    throw bad_address(text, "expected a port from 0 to 65535 after the last ':'");
  if (address.host.empty()) throw bad_address(text, "expected a host before the port");
  return address;
}

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

void configure_socket(boost::asio::generic::stream_protocol::socket& socket) {
  // Refused options cost speed, not correctness, so failures are not errors.
  int one = 1;
  auto handle = socket.native_handle();
  setsockopt(handle, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  setsockopt(handle, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
}

}  // namespace braid::comm
