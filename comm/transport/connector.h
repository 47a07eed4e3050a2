// Makes one outgoing connection: looks the name up and tries each of its addresses, within a time limit.
// Thread rule: everything on the context's thread.
#pragma once

#include <utility>
// Boost 1.74 uses std::exchange without including it.
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/transport/address.h"

namespace braid::comm {

class Connector : public std::enable_shared_from_this<Connector> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  /// A socket, or the reason why there is none. Called once, unless cancelled; later than start() returns.
  using Done = std::function<void(std::optional<Socket>, std::string reason)>;

  Connector(std::shared_ptr<boost::asio::io_context> context, Address address,
            std::chrono::milliseconds timeout);
  void start(Done done);
  void cancel();

 private:
  void try_next(std::string last_error);
  void finish(std::optional<Socket> socket, std::string reason);

  const std::shared_ptr<boost::asio::io_context> context_;
  const Address address_;
  const std::chrono::milliseconds timeout_;
  boost::asio::ip::tcp::resolver resolver_;
  boost::asio::steady_timer timer_;
  std::vector<boost::asio::generic::stream_protocol::endpoint> endpoints_;
  std::size_t next_endpoint_ = 0;
  std::optional<Socket> socket_;
  Done done_;
};

}  // namespace braid::comm
