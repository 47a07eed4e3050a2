// Files of local servers of S3 and of Google's storage, with cuts, slow answers and wrong
// credentials.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "engine/input/files/remote_files.h"
#include "tests/engine/input/files/remote_rows.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// s3_server.py or gcs_server.py, which end with this process.
class StoreServer {
 public:
  StoreServer(const std::string& program, const std::vector<std::string>& files,
              bool checks_credentials = false) {
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
      const std::string script = std::string(BRAID_SOURCE_DIR) + "/tests/engine/input/" + program;
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
  ~StoreServer() {
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
    std::ofstream(dir_.path() / "a.csv") << lines(3000);
    std::ofstream(dir_.path() / "b.csv") << lines(10);
    server_ = std::make_unique<StoreServer>(
        "s3_server.py",
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
  std::unique_ptr<StoreServer> server_;
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
  const StoreServer strict("s3_server.py", {(dir_.path() / "b.csv").string()}, true);
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

class GcsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(dir_.path() / "a.csv") << lines(3000);
    std::ofstream(dir_.path() / "b.csv") << lines(10);
    server_ = std::make_unique<StoreServer>(
        "gcs_server.py",
        std::vector<std::string>{(dir_.path() / "a.csv").string(), (dir_.path() / "b.csv").string()});
    if (server_->port == 0)
      GTEST_SKIP() << "no gcp-storage-emulator in " << BRAID_TEST_PYTHON
                   << ": tests/engine/input/requirements.txt";
    ::setenv("BRAID_IO_DEADLINE", "20s", 1);
    at(server_->port);
  }
  void TearDown() override {
    ::unsetenv("BRAID_IO_DEADLINE");
    ::unsetenv("STORAGE_EMULATOR_HOST");
  }
  static void at(int port) {
    ::setenv("STORAGE_EMULATOR_HOST", ("http://127.0.0.1:" + std::to_string(port)).c_str(), 1);
  }
  TempDir dir_;
  std::unique_ptr<StoreServer> server_;
};

TEST_F(GcsTest, FilesDirectoriesAndPatternsAreRead) {
  EXPECT_EQ(read_all("gs://clicks/data/a.csv"), lines(3000));
  const auto rows =
      read_csv({"gs://clicks/data/a.csv", "gs://clicks/data/b.csv"}, {.header = true, .columns = kColumns});
  EXPECT_EQ(rows->rows, 3010);
  EXPECT_THAT(list_remote("gs://clicks/data"),
              ElementsAre("gs://clicks/data/a.csv", "gs://clicks/data/b.csv"));
  EXPECT_THAT(list_remote("gs://clicks/data/b*.csv"), ElementsAre("gs://clicks/data/b.csv"));
  EXPECT_THAT(list_remote("gs://clicks/data/c*.csv"), ElementsAre());
}

TEST_F(GcsTest, CutsAndSlowAnswersAreTriedAgain) {
  at(server_->proxy);
  EXPECT_EQ(read_all("gs://clicks/data/a.csv"), lines(3000));
}

TEST_F(GcsTest, WhatIsNotThereIsSaid) {
  EXPECT_ERROR(open_data_file("gs://clicks/data/none.csv"), InvalidArgument, HasSubstr("No such file"));
  EXPECT_ERROR(open_data_file("gs://nowhere/a.csv"), InvalidArgument, HasSubstr("No such file"));
}

TEST_F(GcsTest, AServerThatIsGoneIsNamedByTheDeadline) {
  ::setenv("BRAID_IO_DEADLINE", "1s", 1);
  at(1);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_ERROR(open_data_file("gs://clicks/data/a.csv"), Unavailable,
               AllOf(HasSubstr("gs://clicks/data/a.csv"), HasSubstr("within 1 s")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

/// Where nobody gives credentials, as on a host outside of Google's cloud without a file of them.
TEST_F(GcsTest, MissingCredentialsAreSaidByTheDeadline) {
  ::unsetenv("STORAGE_EMULATOR_HOST");
  ::setenv("GCE_METADATA_ROOT", "127.0.0.1:1", 1);
  ::setenv("HOME", dir_.path().c_str(), 1);
  ::setenv("BRAID_IO_DEADLINE", "2s", 1);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_ERROR(open_data_file("gs://clicks/data/a.csv"), Unavailable,
               AllOf(HasSubstr("no credentials"), HasSubstr("GOOGLE_APPLICATION_CREDENTIALS")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  ::unsetenv("GCE_METADATA_ROOT");
}

class StoresEnd : public testing::Environment {
  void TearDown() override { close_stores(); }
};
const testing::Environment* const kStoresEnd = testing::AddGlobalTestEnvironment(new StoresEnd);

}  // namespace
}  // namespace braid
