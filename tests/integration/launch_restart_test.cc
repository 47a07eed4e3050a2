// `braid launch --max-restarts`: a job that has lost a process goes on, and one that is wrong does not.
#include <gmock/gmock.h>
#include <signal.h>

#include <regex>
#include <thread>

#include "tests/integration/run.h"

namespace braid::integration {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LaunchRestartTest : public IntegrationTest {
 protected:
  std::vector<std::string> launch(const Job& job, const char* restarts) const {
    std::vector<std::string> arguments{"launch", "--workers",      "2",      "--grace",
                                       "10",     "--max-restarts", restarts, "--"};
    for (const std::string& argument : job.arguments()) arguments.push_back(argument);
    return arguments;
  }
};

TEST_F(LaunchRestartTest, AJobThatLosesAWorkerGoesOnFromItsCheckpoint) {
  const Job job = mlp().with({"steps=3000", "strategy.kind=ALLREDUCE", "strategy.deadline_seconds=10",
                              "checkpoint.directory=" + path("ck"), "checkpoint.every_steps=100"});
  Process launcher(braid(launch(job, "1")), {}, directory() / "launch");
  ASSERT_TRUE(launcher.says("checkpoint of step 200")) << launcher.err();
  const pid_t worker = child_with(launcher.pid(), R"("index":1)");
  ASSERT_GT(worker, 0);
  ASSERT_EQ(::kill(worker, SIGKILL), 0);
  EXPECT_EQ(launcher.exit_code(), 0) << launcher.err();
  EXPECT_THAT(launcher.err(), AllOf(HasSubstr("starting it again, 1 of 1"), HasSubstr("resumed at step")));
  EXPECT_EQ(result_of(launcher).last_step, 3000U);
}

TEST_F(LaunchRestartTest, WrongInputIsNotTriedAgain) {
  Process launcher(braid(launch(mlp().with({"strategy.kind=PS"}), "3")), {}, directory() / "launch");
  EXPECT_EQ(launcher.exit_code(), 2);
  EXPECT_THAT(launcher.err(), Not(HasSubstr("starting it again")));
}

}  // namespace
}  // namespace braid::integration
