#include "comm/transport/connector.h"

#include <fmt/core.h>

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>

#include "comm/transport/endpoint.h"

namespace braid::comm {

Connector::Connector(std::shared_ptr<boost::asio::io_context> context, Address address,
                     std::chrono::milliseconds timeout)
    : context_(std::move(context)),
      address_(std::move(address)),
      timeout_(timeout),
      resolver_(*context_),
      timer_(*context_) {}

void Connector::start(Done done) {
  done_ = std::move(done);
  timer_.expires_after(timeout_);
  timer_.async_wait([self = shared_from_this()](auto error) {
    if (!error) self->finish(std::nullopt, fmt::format("no connection within {} ms", self->timeout_.count()));
  });
  if (address_.is_unix) {
    endpoints_ = {boost::asio::local::stream_protocol::endpoint(address_.host)};
    boost::asio::post(*context_, [self = shared_from_this()] { self->try_next({}); });
    return;
  }
  resolver_.async_resolve(address_.host, address_.port, [self = shared_from_this()](auto error, auto found) {
    if (error) return self->finish(std::nullopt, error.message());
    for (auto& entry : found) self->endpoints_.emplace_back(entry.endpoint());
    self->try_next({});
  });
}

void Connector::try_next(std::string last_error) {
  if (!done_) return;
  if (next_endpoint_ == endpoints_.size()) return finish(std::nullopt, std::move(last_error));
  auto endpoint = endpoints_[next_endpoint_++];
  socket_.emplace(*context_);
  socket_->async_connect(endpoint, [self = shared_from_this()](boost::system::error_code error) {
    if (!self->done_) return;
    if (error) return self->try_next(error.message());
    configure_socket(self->socket_->native_handle());
    self->finish(std::move(self->socket_), {});
  });
}

void Connector::finish(std::optional<Socket> socket, std::string reason) {
  if (!done_) return;
  auto done = std::move(done_);
  cancel();
  done(std::move(socket), std::move(reason));
}

void Connector::cancel() {
  done_ = nullptr;
  boost::system::error_code ignored;
  timer_.cancel(ignored);
  resolver_.cancel();
  if (socket_) socket_->close(ignored);
}

}  // namespace braid::comm
