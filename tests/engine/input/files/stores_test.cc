// Files of a local S3 server and of a local HTTP server, with cuts, slow answers and wrong credentials.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "engine/input/files/data_file.h"
#include "engine/input/files/remote_files.h"
#include "engine/input/formats/parquet_files.h"
#include "engine/input/formats/readers.h"
#include "tests/support/expect_error.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string lines(int count) {
  std::string text = "x,y\n";
  for (int i = 0; i < count; ++i) text += std::to_string(i) + "," + std::to_string(i % 2) + "\n";
  return text;
}

const std::vector<ColumnSpec> kColumns{{.name = "x", .kind = ColumnKind::Numeric},
                                       {.name = "y", .kind = ColumnKind::Label}};

std::string read_all(const std::string& name) {
  const auto file = open_data_file(name);
  std::string bytes(file->size(), '\0');
  for (std::size_t at = 0; at < bytes.size(); at += 4000)
    file->read_at(at, std::as_writable_bytes(
                          std::span(bytes).subspan(at, std::min<std::size_t>(4000, bytes.size() - at))));
  return bytes;
}

/// s3_server.py, which ends with this process.
class S3Server {
 public:
  explicit S3Server(const std::vector<std::string>& files, bool checks_credentials = false) {
    std::array<int, 2> in{}, out{};
    if (::pipe(in.data()) != 0 || ::pipe(out.data()) != 0) throw Internal("no pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      for (const int each : {in[0], in[1], out[0], out[1]}) ::close(each);
      // So many requests are not asked who they are from: those that make the bucket and its files.
      if (checks_credentials)
        ::setenv("INITIAL_NO_AUTH_ACTION_COUNT", std::to_string(1 + files.size()).c_str(), 1);
      const std::string script = std::string(BRAID_SOURCE_DIR) + "/tests/engine/input/s3_server.py";
      std::vector<const char*> arguments{BRAID_TEST_PYTHON, script.c_str()};
      for (const std::string& file : files) arguments.push_back(file.c_str());
      arguments.push_back(nullptr);
      ::execv(BRAID_TEST_PYTHON, const_cast<char**>(arguments.data()));
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    stdin_ = in[1];
    std::string text;
    char c = 0;
    while (::read(out[0], &c, 1) == 1 && c != '\n') text.push_back(c);
    ::close(out[0]);
    std::istringstream(text) >> port >> proxy;
  }
  ~S3Server() {
    ::close(stdin_);
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  int port = 0, proxy = 0;  // 0: it did not start

 private:
  pid_t pid_ = -1;
  int stdin_ = -1;
};

class S3Test : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_parquet()) GTEST_SKIP() << "this build has no Apache Arrow: cmake/arrow-requirements.txt";
    std::ofstream(dir_.path() / "a.csv") << lines(3000);
    std::ofstream(dir_.path() / "b.csv") << lines(10);
    server_ = std::make_unique<S3Server>(
        std::vector<std::string>{(dir_.path() / "a.csv").string(), (dir_.path() / "b.csv").string()});
    if (server_->port == 0)
      GTEST_SKIP() << "no moto in " << BRAID_TEST_PYTHON << ": tests/engine/input/requirements.txt";
    ::setenv("AWS_ACCESS_KEY_ID", "key", 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", "not-to-be-told", 1);
    ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    ::setenv("BRAID_IO_DEADLINE", "20s", 1);
  }
  void TearDown() override { ::unsetenv("BRAID_IO_DEADLINE"); }
  /// Options in the name keep the servers of several tests apart.
  std::string options(int port) const {
    return "?endpoint_override=127.0.0.1:" + std::to_string(port) + "&scheme=http&region=us-east-1";
  }
  TempDir dir_;
  std::unique_ptr<S3Server> server_;
};

TEST_F(S3Test, FilesDirectoriesAndPatternsAreRead) {
  const std::string with = options(server_->port);
  EXPECT_EQ(read_all("s3://clicks/data/a.csv" + with), lines(3000));
  EXPECT_THAT(list_remote("s3://clicks/data/a.csv" + with), ElementsAre("s3://clicks/data/a.csv" + with));
  const auto rows = read_csv({"s3://clicks/data/a.csv" + with, "s3://clicks/data/b.csv" + with},
                             {.header = true, .columns = kColumns});
  EXPECT_EQ(rows->rows, 3010);
  EXPECT_GT(stamp_of("s3://clicks/data/a.csv" + with).changed_ns, 0);
  ::setenv("AWS_ENDPOINT_URL", ("http://127.0.0.1:" + std::to_string(server_->port)).c_str(), 1);
  EXPECT_THAT(list_remote("s3://clicks/data"),
              ElementsAre("s3://clicks/data/a.csv", "s3://clicks/data/b.csv"));
  EXPECT_THAT(list_remote("s3://clicks/data/b*.csv"), ElementsAre("s3://clicks/data/b.csv"));
  EXPECT_THAT(list_remote("s3://clicks/data/c*.csv"), ElementsAre());
  ::unsetenv("AWS_ENDPOINT_URL");
}

TEST_F(S3Test, CutsAndSlowAnswersAreTriedAgain) {
  EXPECT_EQ(read_all("s3://clicks/data/a.csv" + options(server_->proxy)), lines(3000));
}

TEST_F(S3Test, WhatIsNotThereIsSaid) {
  const std::string with = options(server_->port);
  EXPECT_ERROR(open_data_file("s3://clicks/data/none.csv" + with), InvalidArgument,
               HasSubstr("No such file"));
  EXPECT_ERROR(open_data_file("s3://nowhere/a.csv" + with), InvalidArgument, HasSubstr("No such file"));
}

TEST_F(S3Test, WrongCredentialsAreAClearError) {
  const S3Server strict({(dir_.path() / "b.csv").string()}, true);
  ASSERT_GT(strict.port, 0);
  EXPECT_ERROR(
      open_data_file("s3://clicks/data/b.csv" + options(strict.port)), InvalidArgument,
      AllOf(HasSubstr("access denied"), HasSubstr("AWS_ACCESS_KEY_ID"), Not(HasSubstr("not-to-be-told"))));
}

TEST_F(S3Test, AServerThatIsGoneIsNamedByTheDeadline) {
  ::setenv("BRAID_IO_DEADLINE", "1s", 1);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_ERROR(
      open_data_file("s3://clicks/data/a.csv" + options(1)), Unavailable,
      AllOf(HasSubstr("s3://clicks/data/a.csv"), HasSubstr("within 1 s"), Not(HasSubstr("not-to-be-told"))));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

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

class StoresEnd : public testing::Environment {
  void TearDown() override { close_stores(); }
};
const testing::Environment* const kStoresEnd = testing::AddGlobalTestEnvironment(new StoresEnd);

TEST(RemoteNamesTest, CredentialsInNamesAreRefusedUnsaid) {
  const std::string message = message_of([] { open_data_file("s3://user:hunter2@bucket/a"); });
  EXPECT_THAT(message, HasSubstr("no credentials"));
  EXPECT_THAT(message, Not(HasSubstr("hunter2")));
  EXPECT_ERROR(open_data_file("ftp://host/a"), InvalidArgument, HasSubstr("ftp://"));
}

}  // namespace
}  // namespace braid
