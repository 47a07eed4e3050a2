#include "base/http.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <stdexcept>
#include <thread>

#include "tests/support/eventually.h"
#include "tests/support/expect_error.h"

namespace braid {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A blocking socket without any HTTP of its own. It waits for half a minute, which no server needs, however
/// busy the machine is.
class RawClient {
 public:
  explicit RawClient(const HttpServer& server) {
    const std::string address = server.address();
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    const timeval patience{30, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)
      throw std::runtime_error("no connection");
  }
  ~RawClient() { ::close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void send(const std::string& text) { (void)!::send(socket_, text.data(), text.size(), MSG_NOSIGNAL); }

  /// Reads until `end` has come, or to the end of the connection. A server that does neither fails the test.
  std::string receive(std::optional<std::string> end = std::nullopt) {
    std::string text;
    char piece[4096];
    while (!end || text.find(*end) == std::string::npos) {
      const ssize_t n = ::recv(socket_, piece, sizeof piece, 0);
      if (n < 0 && errno == EAGAIN) throw std::runtime_error("no answer after: " + text.substr(0, 200));
      if (n <= 0) break;
      text.append(piece, static_cast<std::size_t>(n));
    }
    return text;
  }

 private:
  int socket_ = -1;
};

std::string get(const HttpServer& server, const std::string& target, const std::string& method = "GET") {
  RawClient client(server);
  client.send(method + " " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  return client.receive();
}

TEST(HttpTest, ServesAHandlerWithItsTarget) {
  HttpServer server("127.0.0.1:0");
  server.handle("/streams", [](std::string_view target) {
    return HttpResponse{200, "application/json", "{\"target\":\"" + std::string(target) + "\"}"};
  });
  const std::string answer = get(server, "/streams?pretty=1");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(answer, ::testing::EndsWith("\r\n\r\n{\"target\":\"/streams?pretty=1\"}"));
}

TEST(HttpTest, AllInterfacesAreThoseOfBothFamilies) {
  HttpServer server("0.0.0.0:0");
  EXPECT_THAT(server.address(), StartsWith("0.0.0.0:"));
  EXPECT_THAT(get(server, "/"), StartsWith("HTTP/1.1 404")) << "by 127.0.0.1";
  const int probe = ::socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 to{};
  to.sin6_family = AF_INET6;
  to.sin6_addr = in6addr_loopback;
  const bool has_ipv6 = probe >= 0 && ::bind(probe, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  ::close(probe);
  if (!has_ipv6) GTEST_SKIP() << "the loopback device has no IPv6: sysctl net.ipv6.conf.lo.disable_ipv6=0";
  const std::string address = server.address();
  to.sin6_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  const int client = ::socket(AF_INET6, SOCK_STREAM, 0);
  EXPECT_EQ(::connect(client, reinterpret_cast<sockaddr*>(&to), sizeof to), 0) << "by ::1";
  ::close(client);
}

TEST(HttpTest, HeadHasTheLengthAndNoBody) {
  HttpServer server("127.0.0.1:0");
  server.handle("/x", [](std::string_view) { return HttpResponse{.body = "12345"}; });
  const std::string answer = get(server, "/x", "HEAD");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(answer, ::testing::EndsWith("\r\n\r\n"));
}

TEST(HttpTest, AnUnknownPathNamesThoseThatExist) {
  HttpServer server("127.0.0.1:0");
  EXPECT_THAT(get(server, "/"), AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("nothing yet")));
  server.handle("/healthz", [](std::string_view) { return HttpResponse{}; });
  server.handle("/metrics", [](std::string_view) { return HttpResponse{}; });
  EXPECT_THAT(get(server, "/health"),
              AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("there is: /healthz /metrics\n")));
}

TEST(HttpTest, OtherMethodsAreNotAllowed) {
  HttpServer server("127.0.0.1:0");
  server.handle("/x", [](std::string_view) { return HttpResponse{}; });
  for (const char* method : {"POST", "DELETE", "PUT"})
    EXPECT_THAT(get(server, "/x", method),
                AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: GET, HEAD\r\n")));
}

TEST(HttpTest, AHandlersStatusAndExceptionReachTheClient) {
  HttpServer server("127.0.0.1:0");
  server.handle("/readyz", [](std::string_view) {
    return HttpResponse{503, "text/plain", "waiting for peers\n"};
  });
  server.handle("/broken", [](std::string_view) -> HttpResponse { throw std::runtime_error("it broke"); });
  EXPECT_THAT(get(server, "/readyz"), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("waiting for peers")));
  EXPECT_THAT(get(server, "/broken"), AllOf(StartsWith("HTTP/1.1 500"), HasSubstr("it broke")));
  EXPECT_THAT(get(server, "/readyz"), StartsWith("HTTP/1.1 503"));
}

TEST(HttpTest, AConnectionServesManyRequests) {
  HttpServer server("127.0.0.1:0");
  int calls = 0;
  server.handle(
      "/n", [&](std::string_view) { return HttpResponse{.body = "call " + std::to_string(++calls) + "."}; });
  RawClient client(server);
  for (int i = 1; i <= 3; ++i) {
    client.send("GET /n HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(client.receive("."), HasSubstr("call " + std::to_string(i) + "."));
  }
  client.send("GET /n HTTP/1.1\r\nHost: x\r\n\r\nGET /n HTTP/1.1\r\nHost: x\r\n\r\n");  // pipelined
  EXPECT_THAT(client.receive("call 5."), HasSubstr("call 4."));
}

TEST(HttpTest, ASlowClientDoesNotBlockAnother) {
  HttpServer server("127.0.0.1:0", {.request_timeout = 120s});  // longer than anybody waits here
  server.handle("/x", [](std::string_view) { return HttpResponse{.body = "ok"}; });
  RawClient slow(server), silent(server);
  slow.send("GET /x HT");
  for (int i = 0; i < 5; ++i) EXPECT_THAT(get(server, "/x"), ::testing::EndsWith("ok"));
  slow.send("TP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(slow.receive(), ::testing::EndsWith("ok")) << "it was there all the time";
}

TEST(HttpTest, ASlowClientIsCutOff) {
  HttpServer server("127.0.0.1:0", {.request_timeout = 200ms});
  server.handle("/x", [](std::string_view) { return HttpResponse{.body = "ok"}; });
  RawClient slow(server), silent(server);
  slow.send("GET /x HT");
  EXPECT_EQ(slow.receive(), "");
  EXPECT_EQ(silent.receive(), "");
}

TEST(HttpTest, AClientThatDoesNotReadIsCutOff) {
  HttpServer server("127.0.0.1:0", {.request_timeout = 120s, .response_timeout = 200ms, .connections = 2});
  server.handle("/big", [](std::string_view) { return HttpResponse{.body = std::string(64 << 20, 'x')}; });
  server.handle("/x", [](std::string_view) { return HttpResponse{.body = "ok."}; });
  RawClient greedy(server), other(server);
  greedy.send("GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
  other.send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(other.receive("ok."), HasSubstr("ok."));
  EXPECT_TRUE(eventually([&] { return get(server, "/x").ends_with("ok."); })) << "its place is free again";
  EXPECT_LT(greedy.receive().size(), std::size_t{64 << 20});
}

TEST(HttpTest, RequestsThatAreTooLongOrNotHttpAreRefused) {
  HttpServer server("127.0.0.1:0", {.header_bytes = 1024, .body_bytes = 10});
  server.handle("/x", [](std::string_view) { return HttpResponse{.body = "ok"}; });
  RawClient long_header(server), long_body(server), other(server);
  long_header.send("GET /x HTTP/1.1\r\nA: " + std::string(5000, 'a') + "\r\n\r\n");
  EXPECT_THAT(long_header.receive(), StartsWith("HTTP/1.1 431"));
  long_body.send("GET /x HTTP/1.1\r\nContent-Length: 11\r\n\r\n12345678901");
  EXPECT_THAT(long_body.receive(), StartsWith("HTTP/1.1 413"));
  other.send("HELO mail.example.org\r\n\r\n");
  EXPECT_THAT(other.receive(), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(get(server, "/x"), ::testing::EndsWith("ok"));
}

TEST(HttpTest, ConnectionsBeyondTheLimitAreClosed) {
  HttpServer server("127.0.0.1:0", {.request_timeout = 120s, .connections = 2});
  server.handle("/x", [](std::string_view) { return HttpResponse{.body = "ok."}; });
  std::optional<RawClient> first(server);
  RawClient second(server);
  first->send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
  second.send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(first->receive("ok."), HasSubstr("ok."));
  EXPECT_THAT(second.receive("ok."), HasSubstr("ok."));
  EXPECT_EQ(RawClient(server).receive(), "");
  first.reset();
  EXPECT_TRUE(eventually([&] { return get(server, "/x").ends_with("ok."); }));
}

TEST(HttpTest, StopsWithoutDelayWhileConnectionsAreOpen) {
  constexpr auto kFar = 60s;
  std::optional<HttpServer> server(std::in_place, "127.0.0.1:0",
                                   HttpLimits{.request_timeout = kFar, .stop_timeout = kFar});
  server->handle("/x", [](std::string_view) { return HttpResponse{.body = "ok."}; });
  RawClient idle(*server), kept(*server);
  kept.send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
  kept.receive("ok.");
  const auto before = Clock::now();
  server.reset();
  EXPECT_LT(Clock::now() - before, kFar / 2);
  EXPECT_EQ(idle.receive(), "");
  EXPECT_EQ(kept.receive(), "");
}

TEST(HttpTest, AResponseUnderWayIsFinishedWhenTheServerStops) {
  constexpr std::size_t kBytes =
      32 << 20;  // more than the sockets hold, so the server still writes when it is stopped
  std::optional<HttpServer> server(std::in_place, "127.0.0.1:0",
                                   HttpLimits{.response_timeout = 60s, .stop_timeout = 60s});
  std::atomic<bool> asked{false};
  server->handle("/big", [&](std::string_view) {
    asked = true;
    return HttpResponse{.body = std::string(kBytes, 'x')};
  });
  RawClient client(*server);
  client.send("GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
  while (!asked) std::this_thread::sleep_for(1ms);
  std::thread stopper([&] { server.reset(); });
  EXPECT_GE(client.receive().size(), kBytes);
  stopper.join();
}

TEST(HttpTest, HandlersMayBeAddedWhileClientsAsk) {
  HttpServer server("127.0.0.1:0");
  std::thread adder([&] {
    for (int i = 0; i < 100; ++i)
      server.handle("/" + std::to_string(i),
                    [i](std::string_view) { return HttpResponse{.body = std::to_string(i)}; });
  });
  for (int i = 0; i < 20; ++i) get(server, "/99");
  adder.join();
  EXPECT_THAT(get(server, "/42"), ::testing::EndsWith("\r\n\r\n42"));
}

TEST(HttpTest, AddressesThatCannotBeBoundAreNamed) {
  HttpServer server("127.0.0.1:0");
  EXPECT_ERROR(HttpServer second(server.address()), Unavailable,
               AllOf(HasSubstr("cannot listen on '" + server.address() + "'"), HasSubstr("in use")));
  EXPECT_ERROR(HttpServer("no.such.host.invalid:80"), Unavailable, HasSubstr("'no.such.host.invalid:80'"));
  for (const char* bad :
       {"", "localhost", "localhost:", ":80", "localhost:http", "localhost:70000", "::1:80"})
    EXPECT_ERROR(HttpServer{bad}, InvalidArgument, HasSubstr("host:port"));
}

}  // namespace
}  // namespace braid
