// `braid launch`: a whole cluster from one command, and its end by signal or failure.
#include <gmock/gmock.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "tests/integration/checkpoints.h"
#include "tests/support/in_some_attempt.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class LaunchTest : public IntegrationTest {
 protected:
  std::unique_ptr<Process> launch(int workers, int servers, const Job& job) const {
    std::vector<std::string> arguments{
        "launch", "--workers", std::to_string(workers), "--ps", std::to_string(servers), "--grace",
        "60",     "--"};
    for (const std::string& word : job.arguments()) arguments.push_back(word);
    return std::make_unique<Process>(braid(arguments), Variables{}, directory() / "launch");
  }
};
using LaunchFaultTest = LaunchTest;

TEST_F(LaunchTest, AJobWithServersRunsToItsEnd) {
  const auto launcher =
      launch(2, 1, wide_deep().with({"steps=30", "strategy.kind=PS", "evaluation.enabled=true"}));
  EXPECT_EQ(launcher->exit_code(), 0) << launcher->err();
  const Result result = result_of(*launcher);
  EXPECT_EQ(result.steps, 30U);
  EXPECT_GT(result.quality.value_or(0), 0.5) << "AUC";
  EXPECT_EQ(launcher->out().find("result: "), launcher->out().rfind("result: ")) << "the leader's alone";
  EXPECT_THAT(launcher->err(), AllOf(HasSubstr("[worker 1] result: "), HasSubstr("[ps 0] ")));
}

TEST_F(LaunchTest, SigtermStopsEverybodyAfterACheckpoint) {
  for (const char* strategy : {"PS", "ALLREDUCE"}) {
    const Path root = directory() / strategy;
    const int servers = strategy == std::string("PS") ? 1 : 0;
    const Job job = wide_deep().with({"steps=1000000", std::string("strategy.kind=") + strategy});
    const auto launcher = launch(2, servers, job.with(checkpoints_in(root, 50)));
    ASSERT_TRUE(launcher->says("checkpoint of step 50:")) << launcher->err();
    launcher->signal(SIGTERM);
    EXPECT_EQ(launcher->exit_code(), 143) << launcher->err();
    const Result result = result_of(*launcher);
    EXPECT_EQ(result.exit, 143);
    EXPECT_THAT(checkpointed_steps(root), Contains(result.last_step)) << strategy;
  }
}

TEST_F(LaunchTest, ClosedStandardDescriptorsAreNotThoseOfOtherFiles) {
  const std::vector<std::string> closed{"sh", "-c", "exec \"$@\" <&- >&- 2>&-", "sh"};
  const Job job = linear_regression().with({"steps=20", "metrics.steps_file=" + path("steps")});
  std::vector<std::string> alone = closed;
  for (const std::string& word : braid(job.arguments())) alone.push_back(word);
  EXPECT_EQ(Process(alone, {}, directory() / "alone").exit_code(), 0);
  EXPECT_EQ(losses_of(path("steps")).size(), 20U);
  std::vector<std::string> arguments{"launch", "--workers", "1", "--log-dir", path("logs"), "--"};
  for (const std::string& word : job.arguments()) arguments.push_back(word);
  std::vector<std::string> launched = closed;
  for (const std::string& word : braid(arguments)) launched.push_back(word);
  EXPECT_EQ(Process(launched, {}, directory() / "launched").exit_code(), 0);
  EXPECT_EQ(losses_of(path("steps")).size(), 20U);
}

TEST_F(LaunchTest, RanksOfTorchrunFindTheirLeader) {
  const launch::PortReservation port(1);
  const std::string& master = port.addresses()[0];
  const Job job = wide_deep().with({"steps=5", "strategy.kind=ALLREDUCE"});
  std::vector<std::unique_ptr<Process>> ranks;
  for (const char* rank : {"0", "1"})
    ranks.push_back(
        std::make_unique<Process>(braid(job.arguments()),
                                  Variables{{"RANK", rank},
                                            {"WORLD_SIZE", "2"},
                                            {"LOCAL_RANK", rank},
                                            {"LOCAL_WORLD_SIZE", "2"},
                                            {"MASTER_ADDR", "127.0.0.1"},
                                            {"MASTER_PORT", master.substr(master.rfind(':') + 1)}},
                                  directory() / rank));
  for (const auto& rank : ranks) EXPECT_EQ(rank->exit_code(), 0) << rank->err();
  // The leader has the result of all.
  EXPECT_THAT(ranks[1]->out(), Not(HasSubstr("result")));
  const std::string out = ranks[0]->out(), mark = "result: ";
  const auto result = nlohmann::json::parse(out.substr(out.rfind(mark) + mark.size()));
  ASSERT_EQ(result["tasks"].size(), 2U) << result;
  EXPECT_EQ(result["tasks"][0]["loss"], result["loss"]);
  EXPECT_EQ(result["tasks"][1]["loss"], result["loss"]);
}

TEST_F(LaunchFaultTest, AKilledWorkerEndsTheJobWithThePeersCode) {
  const Job job = wide_deep().with({"steps=1000000", "strategy.kind=PS", "strategy.deadline_seconds=3"});
  in_some_attempt([&] {
    std::filesystem::remove_all(directory() / "checkpoints");
    const auto launcher = launch(2, 1, job.with(checkpoints_in(directory() / "checkpoints", 50)));
    ASSERT_TRUE(launcher->says("checkpoint of step 50:")) << launcher->err();
    const pid_t worker = child_with(launcher->pid(), R"("type":"worker","index":1)");
    ASSERT_GT(worker, 0);
    ::kill(worker, SIGKILL);
    EXPECT_EQ(launcher->exit_code(), 138);
    EXPECT_THAT(launcher->err(), AllOf(HasSubstr("worker 1"), HasSubstr("lost")));
  });
}

TEST_F(LaunchTest, ATaskWithBadInputEndsTheJobWithItsCode) {
  const auto launcher = launch(2, 1, wide_deep().with({"strategy.kind=PS", "input.global_batch_size=1"}));
  EXPECT_EQ(launcher->exit_code(), 2);
  EXPECT_THAT(launcher->err(),
              AllOf(HasSubstr("[worker 0]"), HasSubstr("fewer than one row for each of the 2 workers")));
}

}  // namespace
}  // namespace braid::integration
