// Files of HTTP servers, read by ranges. Each request has a connection and a deadline of its own; redirects
// are followed.
#include <fmt/format.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/init.h"
#include "engine/input/files/store.h"

namespace braid {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

constexpr std::chrono::seconds kRequest{30};

struct Url {
  bool tls = false;
  std::string host, port, target;
};

Url parse_url(const std::string& name) {
  Url url;
  url.tls = name.starts_with("https://");
  const std::size_t begin = url.tls ? 8 : 7, end = std::min(name.find('/', begin), name.size());
  url.host = name.substr(begin, end - begin);
  url.target = end == name.size() ? "/" : name.substr(end);
  const std::size_t colon = url.host.rfind(':');
  if (colon != std::string::npos && url.host.find(']', colon) == std::string::npos) {
    url.port = url.host.substr(colon + 1);
    url.host.resize(colon);
  } else {
    url.port = url.tls ? "443" : "80";
  }
  if (url.host.starts_with('[') && url.host.ends_with(']'))
    url.host = url.host.substr(1, url.host.size() - 2);
  return url;
}

using Response = http::response<http::string_body>;

/// One request, on a context of its own.
class Request {
 public:
  Request(const Url& url, std::chrono::nanoseconds time)
      : url_(url),
        deadline_(std::chrono::steady_clock::now() + time),
        resolver_(context_),
        socket_(context_) {}

  Response run(http::verb verb, std::optional<std::pair<std::uint64_t, std::uint64_t>> range) {
    asio::ip::tcp::resolver::results_type places;
    wait("looking up the host", [&](auto done) {
      resolver_.async_resolve(url_.host, url_.port, [&places, done](error_code error, auto found) {
        places = found;
        done(error);
      });
    });
    wait("connecting", [&](auto done) {
      asio::async_connect(socket_, places, [done](error_code error, const auto&) { done(error); });
    });
    http::request<http::empty_body> request(verb, url_.target, 11);
    request.set(http::field::host, url_.host + ":" + url_.port);
    request.set(http::field::user_agent, "braid");
    request.set(http::field::connection, "close");
    if (range) request.set(http::field::range, fmt::format("bytes={}-{}", range->first, range->second));
    if (!url_.tls) return exchange(socket_, request, range);
    asio::ssl::context tls(asio::ssl::context::tls_client);
    tls.set_default_verify_paths();
    asio::ssl::stream<asio::ip::tcp::socket&> stream(socket_, tls);
    SSL_set_tlsext_host_name(stream.native_handle(), url_.host.c_str());
    stream.set_verify_mode(asio::ssl::verify_peer);
    stream.set_verify_callback(asio::ssl::host_name_verification(url_.host));
    wait("the TLS handshake",
         [&](auto done) { stream.async_handshake(asio::ssl::stream_base::client, done); });
    return exchange(stream, request, range);
  }

 private:
  template <class Stream>
  Response exchange(Stream& stream, http::request<http::empty_body>& request,
                    std::optional<std::pair<std::uint64_t, std::uint64_t>> range) {
    wait("sending", [&](auto done) {
      http::async_write(stream, request, [done](error_code error, std::size_t) { done(error); });
    });
    http::response_parser<http::string_body> parser;
    // A server that answers a range with the whole file is not read to its end.
    parser.body_limit(range ? range->second - range->first + 1 + (std::uint64_t{1} << 16)
                            : std::uint64_t{1} << 20);
    if (request.method() == http::verb::head) parser.skip(true);
    beast::flat_buffer buffer;
    wait("the answer", [&](auto done) {
      http::async_read(stream, buffer, parser, [done](error_code error, std::size_t) {
        done(error == http::error::body_limit ? error_code() : error);
      });
    });
    return parser.release();
  }

  template <class Start>
  void wait(const char* what, Start start) {
    std::optional<error_code> ended;
    start([&ended](error_code error) { ended = error; });
    context_.restart();
    context_.run_until(deadline_);
    if (!ended) {
      error_code ignored;
      socket_.close(ignored);
      resolver_.cancel();
      context_.restart();
      context_.run();
      throw Unavailable(fmt::format("{}: no answer in time", what));
    }
    if (*ended) throw Unavailable(fmt::format("{}: {}", what, ended->message()));
  }

  const Url url_;
  const std::chrono::steady_clock::time_point deadline_;
  asio::io_context context_;
  asio::ip::tcp::resolver resolver_;
  asio::ip::tcp::socket socket_;
};

[[noreturn]] void fail(const std::string& name, unsigned status) {
  constexpr unsigned kRequestTimeout = 408, kTooMany = 429, kServer = 500;
  const std::string text = fmt::format("the server answers {}", status);
  if (status == kRequestTimeout || status == kTooMany || status >= kServer) throw Unavailable(text);
  const bool denied = status == 401 || status == 403;
  throw InvalidArgument("'" + name + "': " +
                        (denied          ? "access denied: "
                         : status == 404 ? "No such file: "
                                         : "") +
                        text);
}

/// The answer, behind redirects, at `name`, which becomes where it was.
Response ask(std::string& name, http::verb verb,
             std::optional<std::pair<std::uint64_t, std::uint64_t>> range) {
  constexpr int kMostRedirects = 5;
  for (int i = 0; i <= kMostRedirects; ++i) {
    Response response = Request(parse_url(name), std::min<std::chrono::nanoseconds>(kRequest, io_deadline()))
                            .run(verb, range);
    const unsigned status = response.result_int();
    if (status / 100 == 2) return response;
    const std::string to(response[http::field::location]);
    if (status / 100 != 3 || to.empty()) fail(name, status);
    if (to.starts_with("http://") || to.starts_with("https://"))
      name = to;
    else
      name = name.substr(0, std::min(name.find('/', name.find("://") + 3), name.size())) + to;
  }
  throw InvalidArgument("'" + name + "': the server redirects in a circle");
}

class HttpFile : public StoreFile {
 public:
  explicit HttpFile(const std::string& name) : name_(name) {
    const Response head = ask(name_, http::verb::head, std::nullopt);
    const auto length = head[http::field::content_length];
    if (length.empty()) throw InvalidArgument("'" + name + "': the server does not say how long the file is");
    stamp_.size = std::strtoull(std::string(length).c_str(), nullptr, 10);
    stamp_.changed_ns =
        static_cast<std::int64_t>(stable_hash(std::string(head[http::field::etag]) + " " +
                                              std::string(head[http::field::last_modified])) >>
                                  1);
  }
  FileStamp stamp() const override { return stamp_; }
  void read_at(std::uint64_t offset, std::span<std::byte> out) override {
    std::string name = name_;
    const Response part = ask(name, http::verb::get, std::pair{offset, offset + out.size() - 1});
    const bool is_part = part.result() == http::status::partial_content;
    if (!is_part && !(offset == 0 && part.body().size() == out.size()))
      throw InvalidArgument("'" + name_ + "': the server does not answer requests for ranges of bytes");
    if (part.body().size() != out.size())
      throw Unavailable(fmt::format("{} bytes came of {} at {}", part.body().size(), out.size(), offset));
    std::memcpy(out.data(), part.body().data(), out.size());
  }

 private:
  std::string name_;
  FileStamp stamp_;
};

class HttpStore : public Store {
 public:
  std::unique_ptr<StoreFile> open(const std::string& name) override {
    return std::make_unique<HttpFile>(name);
  }
  std::vector<StoreEntry> list(const std::string& directory) override {
    throw InvalidArgument("'" + directory + "': HTTP servers have no lists of files, name each");
  }
};

}  // namespace

Store& http_store() {
  static HttpStore store;
  return store;
}

}  // namespace braid
