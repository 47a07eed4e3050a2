#include "base/http_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

namespace braid {
namespace {

namespace client_asio = boost::asio;
namespace client_beast = boost::beast;
namespace client_http = boost::beast::http;
using ClientTcp = boost::asio::ip::tcp;
using ClientError = boost::system::error_code;
using ClientClock = std::chrono::steady_clock;

/// One request, which keeps itself alive by its pending operation and fills its answer.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(client_asio::io_context& context, const HttpGet& get, std::size_t most_bytes, HttpAnswer& answer)
      : resolver_(context), stream_(context), get_(get), answer_(answer) {
    answer_.error = "no answer in time";
    request_ = {client_http::verb::get, get.target, 11};
    request_.set(client_http::field::host, get.address);
    request_.set(client_http::field::user_agent, "braid");
    request_.set(client_http::field::connection, "close");
    if (!get.authorization.empty()) request_.set(client_http::field::authorization, get.authorization);
    parser_.body_limit(most_bytes);
    most_bytes_ = most_bytes;
  }

  void start() {
    const auto colon = get_.address.rfind(':');
    if (colon == std::string::npos || colon + 1 == get_.address.size())
      return fail("'" + get_.address + "' is not host:port");
    std::string host = get_.address.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    ClientError error;
    const auto address = client_asio::ip::make_address(host, error);
    const std::string port = get_.address.substr(colon + 1);
    if (!error) {  // no look-up, which would be a thread of its own
      const int number = std::atoi(port.c_str());
      if (number < 1 || number > 65535) return fail("'" + get_.address + "' is not host:port");
      stream_.async_connect(ClientTcp::endpoint(address, static_cast<std::uint16_t>(number)),
                            [self = shared_from_this()](ClientError e) { self->on_connected(e); });
      return;
    }
    looks_up_ = true;
    resolver_.async_resolve(
        host, port,
        [self = shared_from_this()](ClientError e, const ClientTcp::resolver::results_type& found) {
          self->looks_up_ = false;
          if (e) return self->fail(e.message());
          self->stream_.async_connect(found, [self](ClientError refused, const ClientTcp::endpoint&) {
            self->on_connected(refused);
          });
        });
  }

  bool looks_up() const { return looks_up_; }

 private:
  void on_connected(ClientError error) {
    if (error) return fail(error.message());
    ClientError ignored;
    stream_.socket().set_option(ClientTcp::no_delay(true), ignored);
    answer_.asked = ClientClock::now();
    client_http::async_write(stream_, request_, [self = shared_from_this()](ClientError e, std::size_t) {
      if (e) return self->fail(e.message());
      client_http::async_read_header(self->stream_, self->buffer_, self->parser_,
                                     [self](ClientError read, std::size_t) { self->on_header(read); });
    });
  }

  void on_header(ClientError error) {
    if (error) return fail(error.message());
    // Boost 1.74 looks at the limit of a response in chunks alone.
    if (const auto length = parser_.content_length(); length && *length > most_bytes_)
      return fail(fmt::format("answers with {} bytes", *length));
    client_http::async_read(stream_, buffer_, parser_,
                            [self = shared_from_this()](ClientError e, std::size_t) { self->on_read(e); });
  }

  void on_read(ClientError error) {
    if (error) return fail(error.message());
    answer_.answered = ClientClock::now();
    answer_.status = static_cast<int>(parser_.get().result_int());
    answer_.body = std::move(parser_.get().body());
    answer_.error = answer_.status == 200 ? "" : fmt::format("answers {}", answer_.status);
  }

  void fail(std::string why) { answer_.error = std::move(why); }

  ClientTcp::resolver resolver_;
  client_beast::tcp_stream stream_;
  client_beast::flat_buffer buffer_;
  const HttpGet& get_;  // this and the next are the caller's, and gone when the context goes
  HttpAnswer& answer_;
  bool looks_up_ = false;
  std::size_t most_bytes_ = 0;
  client_http::request<client_http::empty_body> request_;
  client_http::response_parser<client_http::string_body> parser_;
};

}  // namespace

std::vector<HttpAnswer> http_get_all(const std::vector<HttpGet>& requests, std::chrono::milliseconds timeout,
                                     std::size_t most_bytes) {
  std::vector<HttpAnswer> answers(requests.size());
  auto context = std::make_unique<client_asio::io_context>(1);
  std::vector<std::weak_ptr<Exchange>> left;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto exchange = std::make_shared<Exchange>(*context, requests[i], most_bytes, answers[i]);
    left.push_back(exchange);
    exchange->start();
  }
  context->run_for(timeout);
  // What is left goes with the context. A name that is still being looked up holds it up, which nobody else
  // waits for; its handlers are never called.
  const bool looks_up = std::any_of(left.begin(), left.end(), [](const std::weak_ptr<Exchange>& each) {
    const auto exchange = each.lock();
    return exchange && exchange->looks_up();
  });
  left.clear();
  if (looks_up) std::thread([late = std::move(context)] {}).detach();
  return answers;
}

HttpAnswer http_get(const HttpGet& request, std::chrono::milliseconds timeout) {
  return std::move(http_get_all({request}, timeout).front());
}

}  // namespace braid
