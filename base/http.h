// A small HTTP/1.1 server for /metrics, probes and the page, on its own thread and io_context, so that a busy
// or stuck step never delays a probe. GET and HEAD only; connections are kept alive; a client
// that is slow, or sends too much, ends its own connection and no other. Boost.Beast stays behind http.cc.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace braid {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

struct HttpRequest {
  std::string_view target;         // path and query as sent, not decoded
  std::string_view authorization;  // the header of that name; empty: none
};

/// The value of `name` in the query of a target, "/trace?steps=3"; percent signs are not decoded. Nothing
/// when it is not there.
std::optional<std::string_view> query_value(std::string_view target, std::string_view name);

struct HttpLimits {
  std::chrono::milliseconds request_timeout{10'000};   // from the first wait for a request to its last byte
  std::chrono::milliseconds response_timeout{10'000};  // for the client to take the response
  std::chrono::milliseconds stop_timeout{1'000};  // what responses under way are given when the server stops
  std::size_t header_bytes = 8 * 1024;
  std::size_t body_bytes = 64 * 1024;  // of a GET; read and ignored
  std::size_t connections = 256;       // a further one is closed at once
};

class HttpServer {
 public:
  /// `target` is the request's path and query as sent, not decoded.
  using Handler = std::function<HttpResponse(std::string_view target)>;
  using RequestHandler = std::function<HttpResponse(const HttpRequest&)>;

  /// Binds `listen` ("host:port", "[v6]:port"; port 0 picks a free one; 0.0.0.0 and [::] are both families).
  /// Throws: Unavailable with the address and the reason, InvalidArgument for a text of another form.
  explicit HttpServer(const std::string& listen, const HttpLimits& limits = {});
  ~HttpServer();  // stops accepting, lets responses under way finish, joins
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Handlers may be added while it runs; they are called on the server's thread and must not block.
  /// A path without a handler answers 404 and names the paths that exist; a handler that throws answers 500.
  void handle(std::string path, Handler handler);
  void handle_request(std::string path, RequestHandler handler);
  /// "host:port" with the port that was bound.
  std::string address() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
