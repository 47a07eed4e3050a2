// Run directories: what a run leaves in one, and that no other run ever touches it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/files.h"
#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class RunDirectoryTest : public IntegrationTest {
 protected:
  std::vector<std::string> in_directory(const Job& job, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = job.arguments();
    arguments.insert(arguments.end(), {"--run-dir", path("runs/a")});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  std::vector<json> metrics() const {
    std::vector<json> lines;
    std::istringstream text(read_file(path("runs/a/metrics.jsonl")));
    for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
    return lines;
  }
  std::vector<std::uint64_t> steps() const {
    std::vector<std::uint64_t> found;
    for (const json& line : metrics())
      if (line.contains("loss")) found.push_back(line["step"]);
    return found;
  }
  /// Every file below it, with its bytes.
  std::map<std::string, std::string> content(const std::string& directory) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path(directory)))
      if (entry.is_regular_file()) files[entry.path().string()] = read_file(entry.path());
    return files;
  }
  static std::vector<std::uint64_t> upto(std::uint64_t end) {
    std::vector<std::uint64_t> all(end);
    for (std::uint64_t i = 0; i < end; ++i) all[i] = i;
    return all;
  }
};

TEST_F(RunDirectoryTest, HoldsAllThatTheRunLeaves) {
  const Job job =
      mlp().with({"steps=20", "epochs=0", "evaluation.enabled=true", "evaluation.every_steps=10"});
  const auto process = run("run", in_directory(job));
  ASSERT_EQ(process->exit_code(), 0) << process->err();
  EXPECT_EQ(steps(), upto(20));
  int evaluations = 0;
  for (const json& line : metrics()) evaluations += line.contains("evaluation") ? 1 : 0;
  EXPECT_EQ(evaluations, 2) << "after 10 steps and at the end";
  EXPECT_THAT(read_file(path("runs/a/job.pbtxt")), HasSubstr("run_directory: "));
  EXPECT_EQ(json::parse(read_file(path("runs/a/result.json")))["last_step"], 20);
  EXPECT_TRUE(json::parse(read_file(path("runs/a/trace/worker-0.json"))).contains("traceEvents"));
  EXPECT_TRUE(std::filesystem::exists(path("runs/a/checkpoints/step-000000000020/MANIFEST")));
  EXPECT_FALSE(std::filesystem::is_empty(path("runs/a/tensorboard")));
  EXPECT_THAT(read_file(path("runs/a/log/worker-0.log")),
              AllOf(HasSubstr("checkpoint of step 20"), HasSubstr("run directory: ")));
  // The directory's job is enough to ask for the model again.
  const auto again =
      run("again", {"evaluate", "--job", path("runs/a/job.pbtxt"), "--data-dir", job.data.string()});
  EXPECT_EQ(again->exit_code(), 0) << again->err();
}

TEST_F(RunDirectoryTest, AnotherRunIsRefusedAndTouchesNothing) {
  ASSERT_EQ(run("run", in_directory(mlp().with({"steps=5"})))->exit_code(), 0);
  const auto before = content("runs/a");
  const auto second = run("second", in_directory(mlp().with({"steps=5"})));
  EXPECT_EQ(second->exit_code(), 2);
  EXPECT_THAT(second->err(),
              AllOf(HasSubstr("there is a run already"), HasSubstr("--run-dir " + path("runs/a-2"))));
  EXPECT_EQ(content("runs/a"), before);
}

TEST_F(RunDirectoryTest, AResumedRunGoesOnWithItsLines) {
  const Job job = mlp().with({"checkpoint.every_steps=10"});
  ASSERT_EQ(run("run", in_directory(job.with({"steps=20"})))->exit_code(), 0);
  // A run that was lost two steps behind its checkpoint.
  std::filesystem::remove_all(path("runs/a/checkpoints/step-000000000020"));
  const auto resumed = run("resumed", in_directory(job.with({"steps=30"}), {"--resume"}));
  ASSERT_EQ(resumed->exit_code(), 0) << resumed->err();
  EXPECT_THAT(resumed->err(), HasSubstr("resumed at step 10"));
  EXPECT_EQ(steps(), upto(30)) << "each step once";
  EXPECT_THAT(read_file(path("runs/a/log/worker-0.log")), HasSubstr("resumed at step 10"));
  EXPECT_THAT(read_file(path("runs/a/job.pbtxt")), HasSubstr("steps: 30"));
}

TEST_F(RunDirectoryTest, AKillLosesNoLineOfAStepThatTheCheckpointHas) {
  const Job job = mlp().with({"checkpoint.every_steps=10"});
  Process killed(braid(in_directory(job.with({"steps=100000"}))), {}, directory() / "killed");
  ASSERT_TRUE(killed.says("checkpoint of step 30:")) << killed.err();
  killed.signal(SIGKILL);
  EXPECT_EQ(killed.exit_code(), 128 + SIGKILL);
  const auto reached = checkpointed_steps(path("runs/a/checkpoints"));
  ASSERT_FALSE(reached.empty());
  const std::uint64_t end = reached.back() + 5;
  const auto resumed = run("resumed", in_directory(job.with({"steps=" + std::to_string(end)}), {"--resume"}));
  ASSERT_EQ(resumed->exit_code(), 0) << resumed->err();
  EXPECT_EQ(steps(), upto(end));
}

TEST_F(RunDirectoryTest, OverwritePutsAnotherRunInItsPlace) {
  ASSERT_EQ(run("run", in_directory(mlp().with({"steps=20"})))->exit_code(), 0);
  ASSERT_EQ(run("second", in_directory(mlp().with({"steps=5"}), {"--overwrite"}))->exit_code(), 0);
  EXPECT_EQ(steps(), upto(5));
  EXPECT_EQ(json::parse(read_file(path("runs/a/result.json")))["last_step"], 5);
}

TEST_F(RunDirectoryTest, ARefusedOverwriteLeavesTheEarlierRunAsItWas) {
  ASSERT_EQ(run("run", in_directory(mlp().with({"steps=20"})))->exit_code(), 0);
  const auto before = [&] {
    auto files = content("runs/a");
    std::erase_if(files, [](const auto& file) { return file.first.ends_with(".log"); });
    return files;
  };
  const auto earlier = before();
  for (const char* wrong : {"hooks.on_end=/no/such/program", "input.train_files=none"}) {
    const auto refused = run("refused", in_directory(mlp().with({"steps=5", wrong}), {"--overwrite"}));
    EXPECT_EQ(refused->exit_code(), 2) << refused->err();
    EXPECT_EQ(before(), earlier) << wrong;
  }
  const auto resumed = run("resumed", in_directory(mlp().with({"steps=25"}), {"--resume"}));
  EXPECT_THAT(resumed->err(), HasSubstr("resumed at step 20"));
}

TEST_F(RunDirectoryTest, AnOverwriteThatWasKilledBeforeItBeganGivesTheEarlierRunBack) {
  ASSERT_EQ(run("run", in_directory(mlp().with({"steps=20"})))->exit_code(), 0);
  std::filesystem::create_directory(path("runs/a/.replaced"));
  std::filesystem::rename(path("runs/a/metrics.jsonl"), path("runs/a/.replaced/metrics.jsonl"));
  write("runs/a/metrics.jsonl", "");
  ASSERT_EQ(run("resumed", in_directory(mlp().with({"steps=25"}), {"--resume"}))->exit_code(), 0);
  EXPECT_EQ(steps(), upto(25));
  EXPECT_FALSE(std::filesystem::exists(path("runs/a/.replaced")));
}

TEST_F(RunDirectoryTest, LinesThatAKillHasCutAreMadeWhole) {
  ASSERT_EQ(run("run", in_directory(mlp().with({"steps=20"})))->exit_code(), 0);
  const std::string lines = read_file(path("runs/a/metrics.jsonl"));
  write("runs/a/metrics.jsonl", lines.substr(0, lines.size() - 1));
  ASSERT_EQ(run("resumed", in_directory(mlp().with({"steps=25"}), {"--resume"}))->exit_code(), 0);
  EXPECT_EQ(steps(), upto(25));
}

TEST_F(RunDirectoryTest, AFullDiskCostsTheLinesAndTheTraceButNotTheRun) {
  const auto full = run(
      "full",
      mlp().with({"steps=5", "metrics.steps_file=/dev/full", "metrics.trace_file=/dev/full"}).arguments());
  EXPECT_EQ(full->exit_code(), 0) << full->err();
  EXPECT_THAT(full->err(),
              AllOf(HasSubstr("metrics.steps_file: cannot write '/dev/full': No space left on device"),
                    HasSubstr("metrics.trace_file: cannot write all of '/dev/full'")));
}

TEST_F(RunDirectoryTest, ARunThatNeverBeganIsNone) {
  const auto wrong = run("wrong", in_directory(mlp().with({"steps=5", "input.train_files=none"})));
  EXPECT_EQ(wrong->exit_code(), 2) << wrong->err();
  EXPECT_FALSE(std::filesystem::exists(path("runs/a/job.pbtxt")));
  EXPECT_EQ(run("run", in_directory(mlp().with({"steps=5"})))->exit_code(), 0);
}

TEST_F(RunDirectoryTest, TwoLeadersDoNotShareOne) {
  Process first(braid(in_directory(mlp().with({"steps=100000000"}))), {}, directory() / "first");
  ASSERT_TRUE(reaches_step(first, 1)) << first.err();
  const auto second = run("second", in_directory(mlp().with({"steps=5"}), {"--resume"}));
  EXPECT_EQ(second->exit_code(), 2);
  EXPECT_THAT(second->err(), HasSubstr("another process leads a run in it"));
}

TEST_F(RunDirectoryTest, AllTasksOfAJobLogThere) {
  std::vector<std::string> arguments{"launch", "--workers", "2", "--ps", "1", "--"};
  for (const std::string& word : in_directory(wide_deep().with({"steps=10", "strategy.kind=PS"})))
    arguments.push_back(word);
  const auto launcher = run("launch", arguments);
  ASSERT_EQ(launcher->exit_code(), 0) << launcher->err();
  for (const char* task : {"worker-0", "worker-1", "ps-0"})
    EXPECT_GT(std::filesystem::file_size(path("runs/a/log/" + std::string(task) + ".log")), 100U) << task;
  EXPECT_EQ(steps(), upto(10)) << "the leader's";
  EXPECT_TRUE(std::filesystem::exists(path("runs/a/trace/worker-1.json")));
}

TEST_F(RunDirectoryTest, WhatCannotBeWrittenIsRefused) {
  write("file", "");
  const auto in_file = run("in-file", [&] {
    auto arguments = mlp().with({"steps=5"}).arguments();
    arguments.insert(arguments.end(), {"--run-dir", path("file/a")});
    return arguments;
  }());
  EXPECT_EQ(in_file->exit_code(), 2);
  EXPECT_THAT(in_file->err(), HasSubstr("run_directory '" + path("file/a") + "': cannot make"));
}

}  // namespace
}  // namespace braid::integration
