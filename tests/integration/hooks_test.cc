// The job's hooks: programs and libraries that a run calls, also those that fail, hang, print much, or are
// missing. Training goes on in each case.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/files.h"
#include "tests/integration/run.h"

namespace braid::integration {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class HooksTest : public IntegrationTest {
 protected:
  /// Appends the event as a line to "events".
  std::string keeps() const {
    return "hooks.on_step=printf '%s\\n' \"$BRAID_HOOK_EVENT\" >> " + path("events");
  }
  static std::string of(const std::string& hook, const std::string& line) {
    return line.substr(0, 6) + hook + line.substr(line.find('='));
  }
  std::vector<json> events() const {
    std::vector<json> all;
    std::istringstream text(read_file(path("events")));
    for (std::string line; std::getline(text, line);) all.push_back(json::parse(line));
    return all;
  }
};

TEST_F(HooksTest, HearOfStepsCheckpointsAndTheEnd) {
  const Job job = mlp().with({"steps=30", "checkpoint.directory=" + path("ck"), "checkpoint.every_steps=10",
                              of("on_step", keeps()), of("on_checkpoint", keeps()), of("on_end", keeps()),
                              "hooks.every_steps=15"});
  const auto process = run("run", job.arguments(), {{"BRAID_TOKEN", "a-token-of-some-length"}});
  ASSERT_EQ(process->exit_code(), 0) << process->err();
  std::vector<std::string> names;
  std::vector<std::uint64_t> checkpoints;
  for (const json& event : events()) {
    names.push_back(event["event"]);
    EXPECT_EQ(event["job"], "fashion_mnist_mlp");
    if (event["event"] == "checkpoint") {
      checkpoints.push_back(event["step"]);
      EXPECT_THAT(event["checkpoint"].get<std::string>(), HasSubstr(path("ck") + "/step-"));
      EXPECT_GT(event["metrics"]["loss"], 0);
    }
    if (event["event"] == "step") {
      EXPECT_EQ((event["step"].get<int>() + 1) % 15, 0);
    }
  }
  EXPECT_THAT(checkpoints, ElementsAre(10, 20, 30));
  ASSERT_EQ(names.back(), "end");
  EXPECT_EQ(events().back()["result"]["last_step"], 30);
  EXPECT_EQ(events().back()["exit"], 0);
}

TEST_F(HooksTest, DoNotHearTheToken) {
  const Job job = mlp().with({"steps=2", "hooks.on_end=env > " + path("variables")});
  ASSERT_EQ(run("run", job.arguments(), {{"BRAID_TOKEN", "a-token-of-some-length"}})->exit_code(), 0);
  EXPECT_THAT(read_file(path("variables")),
              AllOf(HasSubstr("BRAID_EVENT=end"), HasSubstr("BRAID_EXIT=0"), Not(HasSubstr("BRAID_TOKEN"))));
}

TEST_F(HooksTest, FailuresAreSaidAndTrainingGoesOn) {
  const Job job =
      mlp().with({"steps=5", "checkpoint.directory=" + path("ck"),
                  "hooks.on_checkpoint=echo the disk is full >&2; exit 7", "hooks.on_end=kill -SEGV $$"});
  const auto process = run("run", job.arguments());
  EXPECT_EQ(process->exit_code(), 0);
  EXPECT_THAT(process->err(), AllOf(HasSubstr("hooks.on_checkpoint: the disk is full"),
                                    HasSubstr("hooks.on_checkpoint: checkpoint exited with code 7"),
                                    HasSubstr("hooks.on_end: end was killed by signal 11")));
}

TEST_F(HooksTest, OneThatHangsIsKilledWithAllThatItStarted) {
  const Job job = mlp().with({"steps=300", "hooks.on_step=sleep 612.5 & sleep 612.5", "hooks.every_steps=1",
                              "hooks.deadline_seconds=0.5"});
  const auto process = run("run", job.arguments());
  EXPECT_EQ(process->exit_code(), 0);
  EXPECT_THAT(process->err(), AllOf(HasSubstr("hooks.on_step: step is killed after 0.5 s"),
                                    HasSubstr("some steps have none"), HasSubstr("calls were left out")));
  EXPECT_EQ(result_of(*process).steps, 300U);
  EXPECT_EQ(processes_with(std::string("sleep\0"
                                       "612.5",
                                       11)),
            0);
}

TEST_F(HooksTest, MuchOutputIsCut) {
  const Job job = mlp().with({"steps=2", "hooks.on_end=yes a long line of output | head -c 3000000"});
  const auto process = run("run", job.arguments());
  EXPECT_EQ(process->exit_code(), 0);
  EXPECT_THAT(process->err(), AllOf(HasSubstr("hooks.on_end: a long line of output"),
                                    HasSubstr("more bytes of its output are left out")));
  EXPECT_LT(process->err().size(), 400'000U);
}

TEST_F(HooksTest, WhatIsMissingIsRefusedBeforeTheFirstStep) {
  const auto refused = [&](const std::string& hook, const char* why) {
    const auto process = run("refused", mlp().with({"steps=2", hook}).arguments());
    EXPECT_EQ(process->exit_code(), 2) << hook;
    EXPECT_THAT(process->err(), HasSubstr(why));
    EXPECT_THAT(process->err(), Not(HasSubstr("step 2/2")));
  };
  refused("hooks.on_end=no-such-program --flag", "hooks.on_end: 'no-such-program' is no program");
  refused("hooks.on_step=/no/such/program", "hooks.on_step: '/no/such/program' is no program");
  refused("hooks.on_end=./none.so", "hooks.on_end: ./none.so: cannot open");
  refused(std::string("hooks.on_end=") + BRAID_SLOW_DOWN, "has no function extern \"C\" int braid_hook");
}

TEST_F(HooksTest, AnErrorEndsTheRunWithAnEvent) {
  const Job job = mlp().with(
      {"steps=1000000", "optimizer.kind=SGD", "optimizer.learning_rate=1e30", of("on_end", keeps())});
  const auto process = run("run", job.arguments());
  EXPECT_EQ(process->exit_code(), 1) << process->err();
  ASSERT_EQ(events().size(), 1U);
  EXPECT_EQ(events()[0]["exit"], 1);
  EXPECT_THAT(events()[0]["error"].get<std::string>(), HasSubstr("loss is"));
}

TEST_F(HooksTest, ALibraryIsCalledInTheProcess) {
  const Job job =
      mlp().with({"steps=40", "hooks.every_steps=10", std::string("hooks.on_step=") + BRAID_HOOK_LIBRARY,
                  std::string("hooks.on_end=") + BRAID_HOOK_LIBRARY});
  const auto process = run("run", job.arguments(), {{"HOOK_FILE", path("events")}});
  ASSERT_EQ(process->exit_code(), 0) << process->err();
  EXPECT_EQ(events().back()["event"], "end");
  EXPECT_GE(events().size(), 2U);
}

TEST_F(HooksTest, ALibraryThatHangsIsLeftAlone) {
  const Job job = mlp().with(
      {"steps=40", std::string("hooks.on_end=") + BRAID_HOOK_LIBRARY, "hooks.deadline_seconds=0.3"});
  const auto process = run("run", job.arguments(), {{"HOOK_FILE", path("events")}, {"HOOK_HANGS", "1"}});
  EXPECT_EQ(process->exit_code(), 0);
  EXPECT_THAT(process->err(), HasSubstr("hooks.on_end: end has not returned after 0.3 s"));
  const auto fails = run("fails", job.arguments(), {{"HOOK_FILE", "/none/x"}});
  EXPECT_EQ(fails->exit_code(), 0);
  EXPECT_THAT(fails->err(), HasSubstr("hooks.on_end: end returned 3"));
}

TEST_F(HooksTest, WhatALibraryThrowsIsSaidAndTheRunGoesOn) {
  const Job job = mlp().with({"steps=20", std::string("hooks.on_end=") + BRAID_HOOK_LIBRARY});
  const auto process = run("run", job.arguments(), {{"HOOK_FILE", path("events")}, {"HOOK_THROWS", "1"}});
  EXPECT_EQ(process->exit_code(), 0);
  EXPECT_THAT(process->err(), HasSubstr("hooks.on_end: end threw: no table for step 10"));
}

TEST_F(HooksTest, TheLeaderAloneCalls) {
  std::vector<std::string> arguments{"launch", "--workers", "2", "--"};
  const Job job = mlp().with({"steps=5", "strategy.kind=ALLREDUCE", of("on_end", keeps())});
  for (const std::string& word : job.arguments()) arguments.push_back(word);
  ASSERT_EQ(run("launch", arguments)->exit_code(), 0);
  EXPECT_EQ(events().size(), 1U);
}

}  // namespace
}  // namespace braid::integration
