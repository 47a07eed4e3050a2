#include "base/http.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>  // before Asio: Boost 1.74 forgets it in C++20

#include "base/descriptors.h"
#include "base/error.h"
#include "base/log.h"
#include "base/look_up.h"

namespace braid {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using ErrorCodeBoost = boost::system::error_code;

constexpr std::chrono::milliseconds kAcceptPause{
    100};  // after an accept that failed, e.g. for want of descriptors

/// "host:port" or "[v6]:port", taken apart.
std::pair<std::string, std::uint16_t> split_address(const std::string& text) {
  const auto colon = text.rfind(':');
  std::uint16_t port = 0;
  if (colon != std::string::npos && colon > 0) {
    std::string host = text.substr(0, colon);
    const char* begin = text.data() + colon + 1;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(begin, end, port);
    const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (brackets) host = host.substr(1, host.size() - 2);
    if (error == std::errc{} && stop == end && begin != end &&
        (brackets || host.find(':') == std::string::npos))
      return {host, port};
  }
  throw InvalidArgument(fmt::format("[http] '{}' is not an address of the form host:port", text));
}

/// What the client sent is wrong, as opposed to the connection.
bool is_http_error(const ErrorCodeBoost& error) {
  return error != http::error::end_of_stream && error != http::error::partial_message &&
         error.category() == http::make_error_code(http::error::bad_method).category();
}

}  // namespace

struct HttpServer::Impl {
  class Session;

  Impl(const std::string& listen, const HttpLimits& limits);
  ~Impl();
  void accept();
  HttpResponse answer(const HttpRequest& request) const;

  const HttpLimits limits;
  std::string address;
  std::set<Session*> sessions;  // of the server's thread only, as is `stopping`
  bool stopping = false;
  asio::io_context context{1};  // its pending operations own the sessions
  tcp::acceptor acceptor{context};
  asio::steady_timer timer{context};  // the pause after a failed accept; later, what is left of the stop

  mutable std::mutex mutex;
  std::map<std::string, RequestHandler, std::less<>> handlers;  // guarded by mutex

  std::thread thread;
};

/// One connection: reads a request, answers it, and so on. Kept alive by its pending operation.
class HttpServer::Impl::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Impl& server, tcp::socket socket) : server_(server), stream_(std::move(socket)) {
    server_.sessions.insert(this);
  }
  ~Session() {
    server_.sessions.erase(this);
    if (server_.stopping && server_.sessions.empty()) server_.timer.cancel();
  }

  void read() {
    if (server_.stopping) return;
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(server_.limits.header_bytes));
    parser_->body_limit(server_.limits.body_bytes);
    stream_.expires_after(server_.limits.request_timeout);
    http::async_read(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](ErrorCodeBoost error, std::size_t) { self->on_read(error); });
  }

  void close() { stream_.close(); }
  bool writing() const { return writing_; }

 private:
  void on_read(ErrorCodeBoost error) {
    if (error == http::error::header_limit)
      return refuse(http::status::request_header_fields_too_large, "the header is too long\n");
    if (error == http::error::body_limit)
      return refuse(http::status::payload_too_large, "the body is too long\n");
    if (is_http_error(error))
      return refuse(http::status::bad_request, "not an HTTP request: " + error.message() + "\n");
    if (!error) respond();  // else timed out, stopped or lost: the last reference goes and closes the socket
  }

  void respond() {
    const auto& request = parser_->get();
    const bool head = request.method() == http::verb::head;
    if (!head && request.method() != http::verb::get) {
      response_ = {http::status::method_not_allowed, request.version()};
      response_.set(http::field::allow, "GET, HEAD");
      response_.set(http::field::content_type, "text/plain; charset=utf-8");
      response_.body() = "only GET and HEAD are served\n";
    } else {
      const auto target = request.target();
      const auto proof = request[http::field::authorization];
      HttpResponse answer = server_.answer({{target.data(), target.size()}, {proof.data(), proof.size()}});
      response_ = {static_cast<http::status>(answer.status), request.version()};
      response_.set(http::field::content_type, answer.content_type);
      // What a page may load and who may show it, for handlers that serve pages.
      response_.set("Content-Security-Policy",
                    "default-src 'self'; style-src 'self'; img-src 'self' data:; frame-ancestors 'none'");
      response_.set("X-Content-Type-Options", "nosniff");
      response_.set(http::field::cache_control, "no-store");
      response_.body() = std::move(answer.body);
    }
    response_.keep_alive(request.keep_alive());
    write(head);
  }

  void refuse(http::status status, std::string why) {
    response_ = {status, 11};
    response_.set(http::field::content_type, "text/plain; charset=utf-8");
    response_.body() = std::move(why);
    response_.keep_alive(false);
    write(false);
  }

  void write(bool head) {
    response_.set(http::field::server, "braid");
    response_.prepare_payload();
    serializer_.emplace(response_);
    stream_.expires_after(server_.limits.response_timeout);
    writing_ = true;
    auto done = [self = shared_from_this()](ErrorCodeBoost error, std::size_t) { self->on_written(error); };
    if (head) {
      serializer_->split(true);  // the header alone, with the length that a GET's body would have
      http::async_write_header(stream_, *serializer_, std::move(done));
    } else {
      http::async_write(stream_, *serializer_, std::move(done));
    }
  }

  void on_written(ErrorCodeBoost error) {
    writing_ = false;
    if (error) return;
    if (response_.keep_alive()) return read();
    ErrorCodeBoost ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(server_.limits.stop_timeout);
    drain();
  }

  /// Reads what the client still sends: closing with it unread would reset the connection and could lose the
  /// response.
  void drain() {
    if (server_.stopping) return;
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(4096),
                            [self = shared_from_this()](ErrorCodeBoost error, std::size_t) {
                              if (!error) self->drain();
                            });
  }

  Impl& server_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  http::response<http::string_body> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  bool writing_ = false;
};

HttpServer::Impl::Impl(const std::string& listen, const HttpLimits& given) : limits(given) {
  const auto [host, port] = split_address(listen);
  ErrorCodeBoost error;
  std::string reason;
  const AddressList found = own_addresses(host, std::to_string(port), reason);
  if (!found) throw Unavailable(fmt::format("[http] cannot resolve '{}': {}", listen, reason));
  tcp::endpoint endpoint;
  endpoint.resize(found->ai_addrlen);
  std::memcpy(endpoint.data(), found->ai_addr, found->ai_addrlen);
  if (endpoint.address().is_unspecified()) {
    // All interfaces are those of IPv6, too, from where probes of an IPv6 cluster come.
    const tcp::endpoint both(tcp::v6(), endpoint.port());
    acceptor.open(both.protocol(), error);
    if (!error) endpoint = both;
    ErrorCodeBoost ignored;  // what the machine's default is then counts
    if (!error) acceptor.set_option(asio::ip::v6_only(false), ignored);
  }
  if (!acceptor.is_open()) acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error)
    throw Unavailable(
        fmt::format("[http] cannot listen on '{}': {}; port 0 takes a free one", listen, error.message()));
  address = fmt::format("{}:{}", host.find(':') != std::string::npos ? "[" + host + "]" : host,
                        acceptor.local_endpoint().port());
  accept();
  thread = std::thread([this] {
    pthread_setname_np(pthread_self(), "http");
    while (!context.stopped()) try {
        context.run();
      } catch (...) {  // of one connection, e.g. out of memory; the others go on
        log_error("{}", capture_current_exception("[http] " + address)->message);
      }
  });
}

HttpServer::Impl::~Impl() {
  asio::post(context, [this] {
    stopping = true;
    ErrorCodeBoost ignored;
    acceptor.close(ignored);
    timer.cancel();
    for (Session* session : sessions)
      if (!session->writing()) session->close();
    if (sessions.empty()) return;
    timer.expires_after(limits.stop_timeout);
    timer.async_wait([this](ErrorCodeBoost) {
      for (Session* session : sessions) session->close();
    });
  });
  thread.join();
}

void HttpServer::Impl::accept() {
  acceptor.async_accept([this](ErrorCodeBoost error, tcp::socket socket) {
    if (stopping) return;
    if (error) {
      log_warning("[http] {}: accept failed: {}", address, error.message());
      timer.expires_after(kAcceptPause);
      timer.async_wait([this](ErrorCodeBoost) {
        if (!stopping) accept();
      });
      return;
    }
    if (sessions.size() < limits.connections && leaves_descriptors(socket.native_handle()))
      std::make_shared<Session>(*this, std::move(socket))->read();
    accept();
  });
}

HttpResponse HttpServer::Impl::answer(const HttpRequest& request) const {
  const std::string_view target = request.target;
  RequestHandler handler;
  std::string known;
  {
    std::lock_guard lock(mutex);
    const auto at = handlers.find(target.substr(0, target.find('?')));
    if (at != handlers.end())
      handler = at->second;
    else
      for (const auto& [path, unused] : handlers) known += " " + path;
  }
  if (!handler)
    return {.status = 404,
            .body = "not found; there is" + (known.empty() ? " nothing yet" : ":" + known) + "\n"};
  try {
    return handler(request);
  } catch (...) {
    const std::string why = capture_current_exception()->message;
    log_warning("[http] {}: {}", target, why);
    return {.status = 500, .body = why + "\n"};
  }
}

std::optional<std::string_view> query_value(std::string_view target, std::string_view name) {
  const auto question = target.find('?');
  if (question == std::string_view::npos) return std::nullopt;
  for (std::string_view rest = target.substr(question + 1); !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find('&'));
    if (part.starts_with(name) && part.size() > name.size() && part[name.size()] == '=')
      return part.substr(name.size() + 1);
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  }
  return std::nullopt;
}

HttpServer::HttpServer(const std::string& listen, const HttpLimits& limits)
    : impl_(std::make_unique<Impl>(listen, limits)) {}
HttpServer::~HttpServer() = default;

void HttpServer::handle(std::string path, Handler handler) {
  handle_request(std::move(path), [handler = std::move(handler)](const HttpRequest& request) {
    return handler(request.target);
  });
}

void HttpServer::handle_request(std::string path, RequestHandler handler) {
  std::lock_guard lock(impl_->mutex);
  impl_->handlers.insert_or_assign(std::move(path), std::move(handler));
}

std::string HttpServer::address() const { return impl_->address; }

}  // namespace braid
