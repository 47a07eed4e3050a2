// Files of a local HTTP server, with cuts, slow and refused answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "engine/input/files/remote_files.h"
#include "tests/engine/input/files/remote_rows.h"
#include "tests/support/expect_error.h"
#include "tests/support/message_of.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Answers HTTP as it is told; one request a connection.
class HttpFiles {
 public:
  using Answer = std::function<std::string(const std::string& request)>;
  explicit HttpFiles(Answer answer)
      : acceptor_(context_, {boost::asio::ip::make_address("127.0.0.1"), 0}), answer_(std::move(answer)) {
    port = acceptor_.local_endpoint().port();
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpFiles() {
    ended_ = true;
    boost::system::error_code ignored;
    boost::asio::ip::tcp::socket(context_).connect(acceptor_.local_endpoint(), ignored);
    boost::asio::ip::tcp::socket last(context_);
    last.open(boost::asio::ip::tcp::v4());
    last.connect(acceptor_.local_endpoint(), ignored);
    thread_.join();
  }
  std::string url(const std::string& path) const { return "http://127.0.0.1:" + std::to_string(port) + path; }
  int port = 0;
  std::atomic<int> requests = 0;

 private:
  void serve() {
    while (!ended_) {
      boost::system::error_code error;
      boost::asio::ip::tcp::socket socket(context_);
      acceptor_.accept(socket, error);
      if (error || ended_) continue;
      std::string request;
      boost::asio::read_until(socket, boost::asio::dynamic_buffer(request), "\r\n\r\n", error);
      if (error) continue;
      ++requests;
      boost::asio::write(socket, boost::asio::buffer(answer_(request)), error);
      socket.shutdown(boost::asio::ip::tcp::socket::shutdown_both, error);
    }
  }

  boost::asio::io_context context_;
  boost::asio::ip::tcp::acceptor acceptor_;
  Answer answer_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

/// `body` by ranges.
std::string ranged(const std::string& request, const std::string& body) {
  const std::string head = "ETag: \"1\"\r\nConnection: close\r\n";
  if (request.starts_with("HEAD"))
    return "HTTP/1.1 200 OK\r\n" + head + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n";
  const std::size_t at = request.find("bytes=");
  std::size_t first = 0, last = 0;
  char dash = 0;
  std::istringstream(request.substr(at + 6)) >> first >> dash >> last;
  const std::string part = body.substr(first, last - first + 1);
  return "HTTP/1.1 206 Partial Content\r\n" + head + "Content-Length: " + std::to_string(part.size()) +
         "\r\n\r\n" + part;
}

TEST(HttpTest, FilesAreReadByRangesAndRedirectsFollowed) {
  const std::string body = lines(2000);
  HttpFiles server([&](const std::string& request) {
    if (request.find(" /old ") != std::string::npos)
      return std::string(
          "HTTP/1.1 302 Found\r\nLocation: /new\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    return ranged(request, body);
  });
  EXPECT_EQ(read_all(server.url("/old")), body);
  const auto rows = read_csv({server.url("/a.csv")}, {.header = true, .columns = kColumns});
  EXPECT_EQ(rows->rows, 2000);
}

TEST(HttpTest, CutAndRefusedAnswersAreTriedAgain) {
  const std::string body = lines(2000);
  std::atomic<int> number = 0;
  HttpFiles server([&](const std::string& request) {
    const std::string whole = ranged(request, body);
    switch (number++ % 3) {
      case 0:
        return whole.substr(0, whole.size() / 2);
      case 1:
        return std::string("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
      default:
        return whole;
    }
  });
  EXPECT_EQ(read_all(server.url("/a.csv")), body);
}

TEST(HttpTest, ErrorsSayWhatToDo) {
  HttpFiles denied([](const std::string&) {
    return std::string("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  });
  EXPECT_ERROR(open_data_file(denied.url("/a.csv")), InvalidArgument, HasSubstr("access denied"));
  EXPECT_EQ(denied.requests, 1) << "it is not tried again";
  HttpFiles whole([](const std::string& request) {
    return std::string("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n") +
           (request.starts_with("HEAD") ? "" : "hello");
  });
  const auto file = open_data_file(whole.url("/a"));
  std::array<std::byte, 2> part{};
  EXPECT_ERROR(file->read_at(1, part), InvalidArgument, HasSubstr("ranges of bytes"));
  ::setenv("BRAID_IO_DEADLINE", "500ms", 1);
  HttpFiles silent([](const std::string&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return std::string();
  });
  EXPECT_ERROR(open_data_file(silent.url("/a")), Unavailable, HasSubstr("within 0.5 s"));
  ::unsetenv("BRAID_IO_DEADLINE");
}

TEST(RemoteNamesTest, CredentialsInNamesAreRefusedUnsaid) {
  const std::string message = message_of([] { open_data_file("s3://user:hunter2@bucket/a"); });
  EXPECT_THAT(message, HasSubstr("no credentials"));
  EXPECT_THAT(message, Not(HasSubstr("hunter2")));
  EXPECT_ERROR(open_data_file("ftp://host/a"), InvalidArgument, HasSubstr("ftp://"));
}

}  // namespace
}  // namespace braid
