// Small things about connected sockets that Boost.Asio leaves out.
#pragma once

#include <utility>
// Boost 1.74 uses std::exchange without including it.
#include <boost/asio/generic/stream_protocol.hpp>
#include <string>

namespace braid::comm {

/// "10.0.0.7:41022", "[::1]:41022", or "unix:/path".
std::string endpoint_name(const boost::asio::generic::stream_protocol::endpoint& endpoint);

/// Options that every data connection has: no delay for small frames (TCP), and keep-alive probes.
void configure_socket(int socket);

}  // namespace braid::comm
