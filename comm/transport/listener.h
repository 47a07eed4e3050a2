// A bound and listening socket, TCP or Unix. Thread rule: start() and close() and the callbacks on the
// context's thread.
#pragma once

#include <utility>
// Boost 1.74 uses std::exchange without including it.
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

namespace braid::comm {

class Listener : public std::enable_shared_from_this<Listener> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Context = std::shared_ptr<boost::asio::io_context>;

  /// Binds "host:port" or "unix:/path"; the file of an earlier Unix socket is replaced.
  /// Throws: Unavailable with the address and the reason, InvalidArgument for a bad address.
  Listener(Context context, const std::string& listen);
  ~Listener();

  /// Accepts from now on: `pick` names the context on which the next socket will live; `accepted` takes it.
  void start(std::function<Context()> pick, std::function<void(Context, Socket)> accepted);
  void close();
  /// With the port that was bound.
  const std::string& address() const { return address_; }

 private:
  void listen_at(const std::string& listen);
  void accept();

  const Context context_;
  std::string address_;
  std::string unix_path_;
  boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol> acceptor_;
  boost::asio::steady_timer retry_;
  std::function<Context()> pick_;
  std::function<void(Context, Socket)> accepted_;
};

}  // namespace braid::comm
