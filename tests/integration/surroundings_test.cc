// What a job meets on strange machines: paths that are no text, output that cannot be written, clocks that
// jump or were never set, and strangers who open connections without end.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <vector>

#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SurroundingsTest : public IntegrationTest {
 protected:
  static std::vector<std::string> into_full(const std::vector<std::string>& command) {
    std::vector<std::string> words{"bash", "-c", "exec \"$0\" \"$@\" >/dev/full"};
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }
};
using SurroundingsFaultTest = SurroundingsTest;

TEST_F(SurroundingsTest, CheckpointsOfServersAndResultsOfToolsTakePathsOfAnyBytes) {
  const Path strange = directory() / "b\xFFytes \"and' blanks";
  const Job job = wide_deep().with({"steps=4", "strategy.kind=PS"}).with(checkpoints_in(strange, 2));
  Cluster cluster(directory() / "job", job, {2, 1});
  cluster.expect_success();
  EXPECT_EQ(checkpointed_steps(strange), (std::vector<std::uint64_t>{2, 4}));
  Cluster resumed(directory() / "resumed", job.with({"steps=6"}), {2, 1}, {"--resume"});
  resumed.expect_success();
  std::vector<std::string> evaluate = wide_deep().arguments();
  evaluate.front() = "evaluate";
  evaluate.insert(evaluate.end(), {"--checkpoint", strange.string()});
  const auto evaluated = run("evaluate", evaluate);
  EXPECT_EQ(evaluated->exit_code(), 0) << evaluated->err();
  EXPECT_THAT(evaluated->out(), HasSubstr("b\xEF\xBF\xBDytes")) << "its result is JSON, so UTF-8";
}

TEST_F(SurroundingsTest, OutputThatCannotBeWrittenIsAFailure) {
  std::vector<std::string> print = wide_deep().arguments();
  print.emplace_back("--print-job");
  for (const std::vector<std::string>& command :
       {print, {"--help"}, {"completion", "bash"}, {"doctor"}, {"train", "--help"}}) {
    Process lost(into_full(braid(command)), {}, directory() / "lost");
    EXPECT_EQ(lost.exit_code(), 1) << ::testing::PrintToString(command);
    EXPECT_THAT(lost.err(), HasSubstr("standard output cannot be written"))
        << ::testing::PrintToString(command);
  }
}

/// Every wait is measured by the steady clock, and nothing that is exchanged is compared with the time of
/// day.
TEST_F(SurroundingsFaultTest, AClockThatJumpsMovesNoDeadline) {
  for (const char* strategy : {"PS", "ALLREDUCE"}) {
    const bool served = std::string(strategy) == "PS";
    ::setenv("LD_PRELOAD", BRAID_SLOW_DOWN, 1);
    ::setenv("CLOCK_JUMP", "100000", 1);
    ::setenv("CLOCK_JUMP_EVERY", "20", 1);
    ::setenv("BRAID_TOKEN", "a token of this test alone", 1);
    Cluster cluster(
        directory() / strategy,
        wide_deep()
            .with({"steps=60", std::string("strategy.kind=") + strategy, "strategy.deadline_seconds=30"})
            .with(checkpoints_in(directory() / (strategy + std::string("-checkpoints")), 20)),
        {2, served ? 1 : 0});
    for (const char* variable : {"LD_PRELOAD", "CLOCK_JUMP", "CLOCK_JUMP_EVERY", "BRAID_TOKEN"})
      ::unsetenv(variable);
    cluster.expect_success();
  }
}

TEST_F(SurroundingsFaultTest, AClockThatWasNeverSetIsNoStranger) {
  ::setenv("LD_PRELOAD", BRAID_SLOW_DOWN, 1);
  ::setenv("CLOCK_JUMP", std::to_string(3600 - std::time(nullptr)).c_str(), 1);  // 1970-01-01 01:00
  ::setenv("BRAID_TOKEN", "a token of this test alone", 1);
  Cluster cluster(directory() / "job", wide_deep().with({"steps=4", "strategy.kind=PS"}), {2, 1});
  for (const char* variable : {"LD_PRELOAD", "CLOCK_JUMP", "BRAID_TOKEN"}) ::unsetenv(variable);
  cluster.expect_success();
}

/// Connections that say nothing, held open until this goes.
class Crowd {
 public:
  /// "127.0.0.1:port"
  explicit Crowd(const std::string& address)
      : port_(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)))) {}
  ~Crowd() {
    for (const int each : sockets_) ::close(each);
  }
  Crowd(const Crowd&) = delete;

  void grow(int count) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port_);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < count; ++i) {
      const int each = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      if (each < 0) return;
      sockets_.push_back(each);
      ::connect(each, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
    }
  }

 private:
  const std::uint16_t port_;
  std::vector<int> sockets_;
};

TEST_F(SurroundingsFaultTest, ConnectionsWithoutEndTakeNoDescriptorsOfFiles) {
  constexpr rlim_t kFew = 100;  // of the server
  ::setenv("BRAID_TOKEN", "a token of this test alone", 1);
  Cluster cluster(directory() / "job",
                  wide_deep()
                      .with({"steps=100000", "strategy.kind=PS", "metrics.progress_seconds=0.05"})
                      .with(checkpoints_in(directory() / "checkpoints", 50)),
                  {1, 1});
  ::unsetenv("BRAID_TOKEN");
  ASSERT_TRUE(reaches_step(cluster.worker(0), 1)) << cluster.worker(0).err();
  const rlimit limit{kFew, kFew};
  ASSERT_EQ(::prlimit(cluster.server(0).pid(), RLIMIT_NOFILE, &limit, nullptr), 0);
  Crowd crowd(cluster.server_address(0));
  crowd.grow(300);
  ASSERT_TRUE(cluster.server(0).says("a connection was refused: too many are open"))
      << cluster.server(0).err();
  const std::vector<std::uint64_t> before = checkpointed_steps(directory() / "checkpoints");
  const std::uint64_t next = (before.empty() ? 0 : before.back()) + 200;
  ASSERT_TRUE(reaches_step(cluster.worker(0), next + 1)) << cluster.worker(0).err();
  cluster.worker(0).signal(SIGTERM);
  EXPECT_THAT(cluster.exit_codes(), ::testing::Each(143))
      << cluster.worker(0).err() << cluster.server(0).err();
  EXPECT_GE(checkpointed_steps(directory() / "checkpoints").back(), next) << "servers write them, too";
}

}  // namespace
}  // namespace braid::integration
