// Addresses of the data plane: "host:port", "[v6]:port" or "unix:/path".
#pragma once

#include <utility>
// Boost 1.74 uses std::exchange without including it.
#include <boost/asio/generic/stream_protocol.hpp>
#include <cstdint>
#include <string>

namespace braid::comm {

struct Address {
  bool is_unix = false;
  std::string host;  // or the path
  std::string port;
};

/// Throws: InvalidArgument naming the text and what is wrong with it.
Address parse_address(const std::string& text);

/// "10.0.0.7:41022", "[::1]:41022", or "unix:/path".
std::string endpoint_name(const boost::asio::generic::stream_protocol::endpoint& endpoint);

/// Options that every data connection has: no delay for small frames (TCP), and keep-alive probes.
void configure_socket(boost::asio::generic::stream_protocol::socket& socket);

}  // namespace braid::comm
