// Addresses of the data plane: "host:port", "[v6]:port", "unix:/path" or "shm:/path". Thread rule: safe from
// any thread.
#pragma once

#include <string>
#include <vector>

namespace braid::comm {

struct Address {
  bool is_unix = false;
  std::string host;  // or the path
  std::string port;
  bool shared = false;  // a Unix socket over which memory is shared that carries the bytes
};

/// Throws: InvalidArgument naming the text and what is wrong with it.
Address parse_address(const std::string& text);

/// "host:4100-4102" is one of "host:4100", "host:4101", "host:4102", the first that is free; any other
/// address is itself alone. Throws: InvalidArgument for ports that are no range.
std::vector<std::string> listen_candidates(const std::string& listen);

/// The host to listen on where peers may come from anywhere: "[::]", which takes IPv4 as well, or "0.0.0.0"
/// on a machine without IPv6.
std::string any_host();

/// A listening IPv6 socket takes IPv4 too, whatever the machine's default is. No effect on others. REQUIRES:
/// not bound yet.
void take_both_families(int socket);

}  // namespace braid::comm
