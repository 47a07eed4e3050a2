// `braid launch --hosts`: over a stand-in for ssh, which runs the command here. Its hosts are addresses of
// the loopback, on which the tasks listen.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/integration/run.h"
#include "tests/support/eventually.h"

namespace braid::integration {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LaunchHostsTest : public IntegrationTest {
 protected:
  /// What ssh does for `ssh HOST COMMAND`: a shell there runs COMMAND in a session of its own, which goes on
  /// when ssh is killed. The command lines are kept in "asked".
  std::string stand_in() const {
    const std::string file =
        write("ssh", "#!/bin/sh\nhost=$1\nshift\necho \"$host $*\" >> " + path("asked") +
                         "\ncase $host in 127.0.0.9) echo unreachable >&2; exit 255;; esac\n"
                         "exec setsid -w sh -c \"$*\"\n");
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return file;
  }

  std::unique_ptr<Process> launch(const std::string& hosts, const std::vector<std::string>& flags,
                                  const Job& job, const Variables& variables = {},
                                  const std::string& grace = "20") {
    std::vector<std::string> arguments{"launch",  "--hosts", write("hosts", hosts), "--ssh", stand_in(),
                                       "--grace", grace};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    arguments.push_back("--");
    for (const std::string& word : job.arguments()) arguments.push_back(word);
    return std::make_unique<Process>(braid(arguments), variables, directory() / "launch");
  }
};
using LaunchHostsFaultTest = LaunchHostsTest;

TEST_F(LaunchHostsTest, AJobOverTwoHostsTrainsAsOnOne) {
  const Job job = wide_deep().with({"steps=20", "strategy.kind=PS"});
  const auto launcher = launch("127.0.0.2 slots=1\n127.0.0.3 slots=1\n", {"--ps", "1"}, job,
                               {{"BRAID_TOKEN", "a-token-of-some-length"}});
  EXPECT_EQ(launcher->exit_code(), 0) << launcher->err();
  EXPECT_EQ(result_of(*launcher).steps, 20U);
  EXPECT_THAT(launcher->out(), AllOf(HasSubstr("\nworker 1         0        20 "), HasSubstr("\nps 0 "),
                                     HasSubstr("\"tasks\":[{\"task\":\"worker 0\"")));
  const std::string asked = read_file(path("asked"));
  EXPECT_THAT(asked, AllOf(HasSubstr("127.0.0.2 "), HasSubstr("127.0.0.3 "), HasSubstr("TF_CONFIG=")));
  EXPECT_THAT(asked, Not(HasSubstr("a-token-of-some-length"))) << "everybody reads command lines";
}

TEST_F(LaunchHostsTest, SigtermMakesACheckpointThere) {
  const Job job = mlp().with({"steps=100000000", "strategy.kind=ALLREDUCE",
                              "checkpoint.directory=" + path("ck"), "checkpoint.every_steps=50"});
  const auto launcher = launch("127.0.0.2\n127.0.0.3\n", {}, job);
  ASSERT_TRUE(launcher->says("checkpoint of step 50:")) << launcher->err();
  launcher->signal(SIGTERM);
  EXPECT_EQ(launcher->exit_code(), 143) << launcher->err();
  EXPECT_EQ(result_of(*launcher).exit, 143);
}

TEST_F(LaunchHostsTest, AHostThatCannotBeReachedIsNamed) {
  const Job job = mlp().with({"steps=100000000", "strategy.kind=ALLREDUCE"});
  const auto launcher = launch("127.0.0.2\n127.0.0.9\n", {}, job, {}, "1");
  EXPECT_EQ(launcher->exit_code(), 138) << launcher->err();
  EXPECT_THAT(launcher->err(), HasSubstr("worker 1 exited with code 255: no connection to host 127.0.0.9"));
}

TEST_F(LaunchHostsTest, WrongFilesAreRefused) {
  const auto few = launch("127.0.0.2\n", {"--workers", "2"}, mlp());
  EXPECT_EQ(few->exit_code(), 2);
  EXPECT_THAT(few->err(), HasSubstr("the hosts have 1 slots, fewer than 2 workers"));
  const auto wrong = launch("127.0.0.2 slots=many\n", {}, mlp());
  EXPECT_EQ(wrong->exit_code(), 2);
  EXPECT_THAT(wrong->err(), HasSubstr("hosts:1: expected slots=N"));
  const auto alone = run("alone", {"launch", "--ssh", "ssh", "--", "train", "--job", "x"});
  EXPECT_EQ(alone->exit_code(), 2);
  EXPECT_THAT(alone->err(), HasSubstr("for --hosts"));
}

TEST_F(LaunchHostsFaultTest, NothingOutlivesAKilledLauncher) {
  const Job job =
      mlp().with({"steps=100000000", "strategy.kind=ALLREDUCE", "name=" + directory().filename().string()});
  const std::string mark = "name=" + directory().filename().string();
  const auto launcher = launch("127.0.0.2\n127.0.0.3\n", {}, job, {}, "2");
  ASSERT_TRUE(launcher->says("step ")) << launcher->err();
  EXPECT_GE(processes_with(mark), 2);
  launcher->signal(SIGKILL);
  launcher->exit_code();
  EXPECT_TRUE(eventually([&] { return processes_with(mark) == 0; })) << "a task has no launcher any more";
}

}  // namespace
}  // namespace braid::integration
