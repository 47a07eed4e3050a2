#include "comm/transport/address.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>

#include "base/error.h"

namespace braid::comm {
namespace {

InvalidArgument bad_address(const std::string& text, const char* reason) {
  return InvalidArgument(fmt::format("[transport] address '{}': {}", text, reason));
}

}  // namespace

Address parse_address(const std::string& text) {
  constexpr std::string_view kUnix = "unix:", kShared = "shm:";
  const bool shared = text.starts_with(kShared);
  if (shared || text.starts_with(kUnix)) {
    Address address{true, text.substr(shared ? kShared.size() : kUnix.size()), {}, shared};
    if (address.host.empty())
      throw bad_address(text, shared ? "expected a path after 'shm:'" : "expected a path after 'unix:'");
    if (address.host.size() >= sizeof(sockaddr_un::sun_path))
      throw bad_address(text, "the path is too long for a Unix socket");
    return address;
  }
  auto colon = text.rfind(':');
  if (colon == std::string::npos) throw bad_address(text, "expected host:port or unix:/path");
  Address address{false, text.substr(0, colon), text.substr(colon + 1), false};
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

std::vector<std::string> listen_candidates(const std::string& listen) {
  const auto colon = listen.rfind(':'), dash = listen.rfind('-');
  const bool is_range = colon != std::string::npos && dash != std::string::npos && dash > colon &&
                        !listen.starts_with("unix:") && !listen.starts_with("shm:");
  if (!is_range) return {listen};
  const auto port = [&](std::string_view text) {
    int value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    return parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size() ? value : 0;
  };
  const std::string_view ports(listen);
  const int first = port(ports.substr(colon + 1, dash - colon - 1)), last = port(ports.substr(dash + 1));
  if (first < 1 || last < first || last > 65535)
    throw bad_address(listen, "expected a range of ports from 1 to 65535, such as 4100-4110, after the ':'");
  std::vector<std::string> each;
  for (int at = first; at <= last; ++at) each.push_back(listen.substr(0, colon + 1) + std::to_string(at));
  return each;
}

std::string any_host() {
  const int socket = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return "0.0.0.0";
  take_both_families(socket);
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_addr = in6addr_any;
  const bool bound = ::bind(socket, reinterpret_cast<const sockaddr*>(&any), sizeof(any)) == 0;
  ::close(socket);
  return bound ? "[::]" : "0.0.0.0";
}

void take_both_families(int socket) {
  int off = 0;
  setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
}

}  // namespace braid::comm
