#include "tests/integration/http_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <sstream>

#include "launch/file_descriptor.h"

namespace braid::integration {

std::optional<HttpReply> http_get(const std::string& address, const std::string& path) {
  const launch::FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{60, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) return std::nullopt;
  const std::string request =
      "GET " + path + " HTTP/1.1\r\nHost: " + address + "\r\nConnection: close\r\n\r\n";
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return std::nullopt;
  std::string answer;
  std::array<char, 4096> block;
  for (ssize_t n; (n = ::recv(fd.get(), block.data(), block.size(), 0)) > 0;)
    answer.append(block.data(), static_cast<std::size_t>(n));
  const std::size_t end = answer.find("\r\n\r\n");
  const std::string length = "Content-Length: ";
  const std::size_t at = answer.find(length);
  if (end == std::string::npos || at > end) return std::nullopt;
  // The process may have ended in the middle of it.
  if (answer.size() - end - 4 != std::stoul(answer.substr(at + length.size()))) return std::nullopt;
  return HttpReply{std::stoi(answer.substr(answer.find(' '))), answer.substr(end + 4)};
}

std::string metrics_address(Process& process) {
  const std::string mark = "metrics: http://";
  EXPECT_TRUE(process.says(mark)) << process.err();
  const std::string log = process.err();
  const std::size_t begin = log.find(mark) + mark.size();
  return log.substr(begin, log.find('/', begin) - begin);
}

std::optional<double> sample(const std::string& metrics, const std::string& metric,
                             const std::string& label) {
  std::optional<double> sum;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t end = line.find_first_of(" {");
    if (line.substr(0, end) != metric || line.find(label) == std::string::npos) continue;
    sum = sum.value_or(0) + std::stod(line.substr(line.rfind(' ') + 1));
  }
  return sum;
}

}  // namespace braid::integration
