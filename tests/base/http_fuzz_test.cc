// 10,000 random and mutated requests: none of them ends the server or holds up those who ask properly.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <string>

#include "base/http.h"
#include "base/http_client.h"

namespace braid {
namespace {

using namespace std::chrono_literals;

constexpr int kRequests = 10'000;

/// What a client sends on one connection; it goes without waiting for an answer, half of the times.
void send_to(const std::string& address, const std::string& bytes, bool listens) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  const timeval patience{0, 20'000};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ASSERT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  (void)!::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (listens) {
    ::shutdown(socket, SHUT_WR);
    char answer[4096];
    while (::recv(socket, answer, sizeof answer, 0) > 0) {
    }
  }
  ::close(socket);
}

std::size_t resident_kib() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("VmRSS:")) return std::stoul(line.substr(6));
  return 0;
}

TEST(HttpFuzzTest, RandomAndMutatedRequestsEndNothing) {
  HttpServer server("127.0.0.1:0");
  server.handle("/job.json", [](std::string_view target) {
    return HttpResponse{
        200, "application/json",
        std::string(query_value(target, "window").value_or("none")) + std::string(20'000, 'x')};
  });
  std::mt19937_64 random(20);
  const std::string good =
      "GET /job.json?window=7&steps=3 HTTP/1.1\r\nHost: x\r\nAuthorization: Braid 1 abcdef\r\n"
      "Content-Length: 3\r\nConnection: keep-alive\r\n\r\nabc";
  const auto byte = [&] { return static_cast<char>(random()); };
  std::size_t begin = 0;
  for (int i = 0; i < kRequests; ++i) {
    std::string bytes = good;
    if (i % 4 == 0) {
      bytes.assign(random() % 600, ' ');
      for (char& c : bytes) c = byte();
    }
    for (auto changes = random() % 8; i % 4 != 0 && changes > 0; --changes) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = byte();
          break;
        case 1:
          bytes.insert(at, random() % 40, byte());
          break;
        case 2:
          bytes.erase(at, random() % 20);
          break;
        default:
          bytes += bytes.substr(at);
      }
      if (bytes.empty()) bytes = "G";
    }
    send_to(server.address(), bytes, random() % 2 == 0);
    if (i == 1000) begin = resident_kib();
    if (i % 1000 == 0) {
      EXPECT_EQ(http_get({server.address(), "/job.json"}, 20s).status, 200) << i;
    }
  }
  EXPECT_EQ(http_get({server.address(), "/job.json?window=1"}, 20s).status, 200);
  EXPECT_LT(resident_kib(), begin + 32 * 1024) << "memory stays bounded";
}

}  // namespace
}  // namespace braid
