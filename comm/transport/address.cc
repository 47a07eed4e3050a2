#include "comm/transport/address.h"

#include <fmt/core.h>
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

}  // namespace braid::comm
