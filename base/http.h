// A small HTTP/1.1 server for /metrics, /healthz, /readyz and /streams, on its own thread and io_context, so that a busy
// or stuck step never delays a probe. GET and HEAD only. Boost.Beast stays behind http.cc.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace braid {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpServer {
 public:
  using Handler = std::function<HttpResponse(std::string_view target)>;

  /// Binds `listen` ("host:port", port 0 picks a free one). Throws: Unavailable with the address and the reason.
  explicit HttpServer(const std::string& listen);
  ~HttpServer();  // stops and joins
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Handlers may be added while it runs; they are called on the server's thread and must not block.
  /// A path without a handler answers 404 and names the paths that exist; a handler that throws answers 500.
  void handle(std::string path, Handler handler);
  std::string address() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
