// Servers and workers as processes that are killed or stopped in mid-job.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "launch/port_reservation.h"
#include "ps/client/ps_client.h"
#include "tests/support/in_some_attempt.h"

namespace braid::ps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

WaitContext soon() { return WaitContext::with_timeout(seconds(60)); }

/// A child process whose first line of output can be read. Killed at the end.
class Process {
 public:
  explicit Process(std::vector<std::string> arguments) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    std::vector<char*> argv{const_cast<char*>(BRAID_PS_PROCESS)};
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      execv(BRAID_PS_PROCESS, argv.data());
      _exit(127);
    }
    close(ends[1]);
    output_ = fdopen(ends[0], "r");
  }
  ~Process() {
    send(SIGKILL);
    wait();
    fclose(output_);
  }
  std::string line() {
    char text[256] = {};
    if (fgets(text, sizeof text, output_) == nullptr) return {};
    std::string line(text);
    line.pop_back();
    return line;
  }
  /// Returns after SIGSTOP when the process stands still: the kernel stops its threads one by one.
  void send(int signal) {
    if (pid_ <= 0) return;
    kill(pid_, signal);
    if (signal == SIGSTOP) waitpid(pid_, nullptr, WUNTRACED);
  }
  int wait() {
    int status = 0;
    if (pid_ > 0) waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  FILE* output_ = nullptr;
};

class PsProcessTest : public testing::Test {
 protected:
  void start_servers(int count) {
    servers_.clear();
    servers_.resize(static_cast<std::size_t>(count));
    ports_.emplace(count);
    addresses_ = ports_->addresses();
    for (int s = 0; s < count; ++s) start_server(s, count);
  }
  void start_server(int index, int count) {
    auto& server = servers_[static_cast<std::size_t>(index)];
    const std::string& address = addresses_[static_cast<std::size_t>(index)];
    server = std::make_unique<Process>(
        std::vector<std::string>{"server", std::to_string(index), std::to_string(count), "1000", address});
    ASSERT_EQ(server->line(), address);
  }
  std::unique_ptr<PsClient> chief(int workers) {
    PsClient::Options options;
    options.servers = addresses_;
    options.workers = workers;
    options.job = "test";
    options.incarnation = 1;
    options.deadline = milliseconds(1000);
    auto client = PsClient::connect(options, soon());
    TableSet set;
    set.dense = {{"w", 9000}};
    set.workers = workers;
    client->create_tables(set, soon());
    client->set_dense("w", std::vector<float>(9000), soon());
    return client;
  }
  static void push(PsClient& client, std::uint64_t step) {
    const std::vector<float> ones(9000, 1.0F);
    PushRequest push;
    push.step = step;
    push.params = {1.0F, 1.0F, step};
    push.dense = {{0, ones}};
    client.push(std::move(push), soon());
  }
  static ErrorRecord pull_error(PsClient& client, std::uint64_t version, const WaitContext& wait) {
    std::vector<float> w(9000);
    try {
      client.pull({{{0, w}}, {}, version, true}, wait);
    } catch (const Error& e) {
      return {e.code(), e.message()};
    }
    return {ErrorCode::Internal, "no error"};
  }
  std::unique_ptr<Process> start_worker(int worker, int workers, int steps) {
    std::vector<std::string> arguments{"worker", std::to_string(worker), std::to_string(workers),
                                       std::to_string(steps)};
    arguments.insert(arguments.end(), addresses_.begin(), addresses_.end());
    return std::make_unique<Process>(arguments);
  }

  std::vector<std::unique_ptr<Process>> servers_;
  std::optional<launch::PortReservation> ports_;  // kept while a server is away
  std::vector<std::string> addresses_;
};

TEST_F(PsProcessTest, AKilledWorkerIsNamedWithItsRound) {
  for (int signal : {SIGKILL, SIGSTOP}) {
    SCOPED_TRACE(signal);
    in_some_attempt([&] {
      start_servers(2);
      auto client = chief(2);
      auto worker = start_worker(1, 2, 2);
      for (std::uint64_t step = 0; step < 3; ++step) push(*client, step);
      ASSERT_EQ(worker->line(), "pushed");
      worker->send(signal);
      const auto begin = std::chrono::steady_clock::now();
      const ErrorRecord error = pull_error(*client, 3, soon());
      EXPECT_EQ(error.code, ErrorCode::Unavailable);
      EXPECT_THAT(error.message, HasSubstr("worker 1 ("));
      EXPECT_THAT(error.message,
                  HasSubstr(signal == SIGKILL ? "lost: its connection closed" : "lost: silent for"));
      EXPECT_THAT(error.message, HasSubstr("round 2 of table 'w' waits for it"));
      EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10)) << "the deadline is 1 s";
    });
  }
}

TEST_F(PsProcessTest, AKilledServerIsNamedAndAnEmptySuccessorIsRecognised) {
  in_some_attempt([&] {
    start_servers(2);
    auto client = chief(1);
    push(*client, 0);
    servers_[1]->send(SIGKILL);
    servers_[1]->wait();
    const ErrorRecord lost = pull_error(*client, 1, WaitContext::with_timeout(seconds(1)));
    EXPECT_EQ(lost.code, ErrorCode::Unavailable);
    EXPECT_THAT(lost.message, HasSubstr("server 1 (" + addresses_[1] + ") lost"));

    start_server(1, 2);
    const ErrorRecord restarted = pull_error(*client, 1, soon());
    EXPECT_EQ(restarted.code, ErrorCode::Unavailable);
    EXPECT_THAT(restarted.message, HasSubstr("server 1 (" + addresses_[1] + ") lost: it was started again"));
  });
}

TEST_F(PsProcessTest, AStoppedServerDoesNotHoldTheClientPastItsDeadline) {
  start_servers(2);
  auto client = chief(1);
  servers_[0]->send(SIGSTOP);
  const auto begin = std::chrono::steady_clock::now();
  const ErrorRecord error = pull_error(*client, 0, WaitContext::with_timeout(milliseconds(800)));
  EXPECT_EQ(error.code, ErrorCode::Unavailable);
  EXPECT_THAT(error.message, HasSubstr("server 0 (" + addresses_[0] + ") does not answer"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
}

TEST_F(PsProcessTest, ShutdownEndsTheProcesses) {
  start_servers(2);
  auto client = chief(1);
  client->shutdown(soon());
  for (auto& server : servers_) {
    const int status = server->wait();
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

}  // namespace
}  // namespace braid::ps
