// Two runs and one checkpoint directory: what a new run may do there, whose model is kept, and who hears of a
// refusal.
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <fstream>

#include "base/checkpoint.h"
#include "base/files.h"
#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

using Steps = std::vector<std::uint64_t>;

class RunsTest : public IntegrationTest {
 protected:
  Path root() const { return directory() / "checkpoints"; }
  Job job(int steps, const std::string& strategy = "LOCAL") const {
    return linear_regression().with({"steps=" + std::to_string(steps), "strategy.kind=" + strategy,
                                     "checkpoint.directory=" + root().string(), "checkpoint.every_steps=100",
                                     "checkpoint.keep=3"});
  }
  /// A job of generated rows that two workers can share.
  Job shared_job(int steps, const std::string& strategy) const {
    return mmoe().with({"steps=" + std::to_string(steps), "strategy.kind=" + strategy,
                        "checkpoint.directory=" + root().string(), "checkpoint.every_steps=10",
                        "strategy.start_deadline_seconds=200", "strategy.deadline_seconds=200"});
  }
  CheckpointRun latest_run() const { return CheckpointStore(root()).newest()->meta.run; }
  static Result finished(Process& process) {
    EXPECT_EQ(process.exit_code(), 0) << process.err();
    return result_of(process);
  }
  std::unique_ptr<Process> start(const std::string& name, const Job& job, const std::string& flag = "") {
    std::vector<std::string> arguments = job.arguments();
    if (!flag.empty()) arguments.push_back(flag);
    return std::make_unique<Process>(braid(arguments), Variables{}, directory() / name);
  }
};
using RunsFaultTest = RunsTest;

TEST_F(RunsTest, ANewRunInAUsedDirectoryIsRefusedAndChangesNothing) {
  finished(*start("first", job(400)));
  ASSERT_EQ(checkpointed_steps(root()), (Steps{200, 300, 400}));
  const Files before = files_of_newest(root());
  const auto second = start("second", job(150));
  EXPECT_EQ(second->exit_code(), 2);
  EXPECT_THAT(second->err(), AllOf(HasSubstr("checkpoint.directory '" + root().string() +
                                             "' has checkpoints of another run"),
                                   HasSubstr("steps 200 to 400"), HasSubstr("--resume"),
                                   HasSubstr("another checkpoint.directory"), HasSubstr("--overwrite")));
  EXPECT_THAT(second->out(), Not(HasSubstr("result:")));
  EXPECT_EQ(checkpointed_steps(root()), (Steps{200, 300, 400}));
  EXPECT_TRUE(files_of_newest(root()) == before);
}

TEST_F(RunsTest, AShorterRunThatOverwritesIsTheOneThatIsKept) {
  finished(*start("first", job(400)));
  const CheckpointRun old = latest_run();
  const auto second = start("second", job(150), "--overwrite");
  EXPECT_EQ(finished(*second).last_step, 150U);
  EXPECT_EQ(checkpointed_steps(root()), (Steps{100, 150}));
  const CheckpointRun run = latest_run();
  EXPECT_TRUE(old.before(run));
  EXPECT_EQ(run.number, 2U);

  // Whoever asks for the newest checkpoint gets that one.
  const auto shown = this->run("show", {"ckpt", "show", root().string()});
  EXPECT_THAT(shown->out(), AllOf(HasSubstr("step 150"), HasSubstr("run 2, begun "), HasSubstr(run.id)));
  const auto listed = this->run("ls", {"ckpt", "ls", root().string()});
  EXPECT_THAT(listed->out(), AllOf(ContainsRegex("run 2, begun [-0-9: ]+ UTC"), Not(HasSubstr("run 1"))));

  const auto resumed = start("resumed", job(250), "--resume");
  finished(*resumed);
  EXPECT_THAT(resumed->err(), HasSubstr("resumed at step 150"));
  EXPECT_EQ(checkpointed_steps(root()), (Steps{150, 200, 250}));
  EXPECT_TRUE(latest_run().same_as(run)) << "a resumed run is the same run";
}

TEST_F(RunsTest, ResumeAndOverwriteExcludeEachOther) {
  std::vector<std::string> both = job(100).arguments();
  both.insert(both.end(), {"--resume", "--overwrite"});
  const auto refused = run("both", both);
  EXPECT_EQ(refused->exit_code(), 2);
  EXPECT_THAT(refused->err(), AllOf(HasSubstr("--resume"), HasSubstr("excludes")));
  std::vector<std::string> nowhere = linear_regression().with({"steps=1"}).arguments();
  nowhere.push_back("--overwrite");
  const auto without = run("nowhere", nowhere);
  EXPECT_EQ(without->exit_code(), 2);
  EXPECT_THAT(without->err(), HasSubstr("--overwrite needs checkpoint.directory in the job"));
}

TEST_F(RunsTest, ResumingWhereNothingIsBeginsAtStepZero) {
  const auto first = start("first", job(120), "--resume");
  EXPECT_EQ(finished(*first).steps, 120U);
  EXPECT_THAT(first->err(),
              HasSubstr("--resume: no checkpoint in '" + root().string() + "', starting at step 0"));
  EXPECT_EQ(finished(*start("second", job(130), "--resume")).steps, 10U);
  EXPECT_EQ(latest_run().number, 1U);
}

/// As a pod that is started again with --resume after its first process began to overwrite.
TEST_F(RunsFaultTest, AnOverwritingRunKilledBeforeItsFirstCheckpointIsResumedAtStepZero) {
  finished(*start("first", job(400)));
  {
    const auto killed =
        start("killed", job(100000000).with({"checkpoint.every_steps=99999999"}), "--overwrite");
    ASSERT_TRUE(killed->says("step ")) << killed->err();
    killed->signal(SIGKILL);
    ASSERT_EQ(killed->exit_code(), 128 + SIGKILL);
  }
  EXPECT_EQ(checkpointed_steps(root()), (Steps{200, 300, 400})) << "nothing is lost yet";
  const auto listed = run("ls", {"ckpt", "ls", root().string()});
  EXPECT_THAT(listed->out(),
              AllOf(HasSubstr("run 1, "), ContainsRegex("run 2, .*: no complete checkpoint yet")));
  const auto resumed = start("resumed", job(150), "--resume");
  EXPECT_EQ(finished(*resumed).steps, 150U);
  EXPECT_THAT(resumed->err(), HasSubstr("--resume: no checkpoint of run 2"));
  EXPECT_EQ(checkpointed_steps(root()), (Steps{100, 150}));
}

TEST_F(RunsFaultTest, KilledAnywhereAnOverwritingRunLeavesAWholeCheckpoint) {
  finished(*start("first", job(400)));
  for (int trial = 0; trial < 8; ++trial) {
    const auto killed = start("killed", job(100000000).with({"checkpoint.every_steps=5"}), "--overwrite");
    if (trial % 2 == 1) {
      EXPECT_TRUE(killed->says("checkpoint of step 5:")) << killed->err();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(20 * trial));
    }
    killed->signal(SIGKILL);
    ASSERT_EQ(killed->exit_code(), 128 + SIGKILL);
    const auto newest = CheckpointStore(root()).newest();
    ASSERT_TRUE(newest) << "trial " << trial;
    for (const ShardInfo& shard : newest->shards) ShardReader(newest->directory / shard.file).verify();
  }
  EXPECT_EQ(finished(*start("last", job(20), "--overwrite")).last_step, 20U);
  EXPECT_EQ(checkpointed_steps(root()), (Steps{20}));
}

TEST_F(RunsTest, CheckpointsWithoutARunAreResumedAndRefusedLikeOthers) {
  finished(*start("first", job(120)));
  // As programs wrote them before runs were told apart.
  for (const CheckpointInfo& info : CheckpointStore(root()).list()) {
    CheckpointStore store(directory() / "old");
    const auto temporary = store.begin(info.meta.step);
    for (const ShardInfo& shard : info.shards)
      std::filesystem::copy_file(info.directory / shard.file, temporary / shard.file);
    CheckpointMeta meta = info.meta;
    meta.run = {};
    store.commit(temporary, meta, info.shards);
  }
  const Job old = job(130).with({"checkpoint.directory=" + path("old")});
  const auto refused = start("refused", old);
  EXPECT_EQ(refused->exit_code(), 2);
  EXPECT_THAT(refused->err(), HasSubstr("(a run from before runs had numbers, "));
  EXPECT_EQ(finished(*start("resumed", old, "--resume")).steps, 10U);
  EXPECT_EQ(checkpointed_steps(directory() / "old"), (Steps{100, 120, 130}));
}

class RunsOfClustersTest : public RunsTest, public ::testing::WithParamInterface<const char*> {
 protected:
  std::string strategy() const { return GetParam(); }
  Cluster::Shape shape() const { return {2, strategy() == "PS" ? 2 : 0}; }
};

TEST_P(RunsOfClustersTest, ARefusedLeaderEndsAllProcessesAtOnceWithItsWords) {
  {
    Cluster first(directory() / "first", shared_job(20, strategy()), shape());
    first.expect_success();
  }
  const Steps before = checkpointed_steps(root());
  const auto begin = std::chrono::steady_clock::now();
  Cluster second(directory() / "second", shared_job(10, strategy()), shape());
  for (const int code : second.exit_codes()) EXPECT_EQ(code, 2);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took, std::chrono::seconds(100)) << "they waited for their deadlines";
  const std::string words = "has checkpoints of another run (run 1, begun ";
  for (int w = 0; w < shape().workers; ++w) EXPECT_THAT(second.worker(w).err(), HasSubstr(words)) << w;
  for (int s = 0; s < shape().servers; ++s) EXPECT_THAT(second.server(s).err(), HasSubstr(words)) << s;
  EXPECT_EQ(checkpointed_steps(root()), before);
}

TEST_P(RunsOfClustersTest, ARunThatOverwritesIsKeptAndResumed) {
  {
    Cluster first(directory() / "first", shared_job(40, strategy()), shape());
    first.expect_success();
  }
  {
    Cluster second(directory() / "second", shared_job(20, strategy()), shape(), {"--overwrite"});
    second.expect_success();
  }
  EXPECT_EQ(checkpointed_steps(root()), (Steps{10, 20}));
  const CheckpointRun run = latest_run();
  EXPECT_EQ(run.number, 2U);
  Cluster resumed(directory() / "resumed", shared_job(40, strategy()), shape(), {"--resume"});
  resumed.expect_success();
  EXPECT_EQ(losses_of(resumed.steps_file(0), 20).size(), 20U);
  EXPECT_TRUE(latest_run().same_as(run));
  EXPECT_EQ(checkpointed_steps(root()), (Steps{20, 30, 40}));
}

INSTANTIATE_TEST_SUITE_P(Strategies, RunsOfClustersTest, ::testing::Values("ALLREDUCE", "PS"));

/// It would remove the half-written checkpoints of the first, which has the same run.
TEST_F(RunsFaultTest, ARunThatIsStillWrittenIsNotResumedBesides) {
  const Job endless = job(100000000).with({"metrics.progress_seconds=0.05"});
  const auto first = start("first", endless);
  ASSERT_TRUE(reaches_step(*first, 300)) << first->err();
  const auto second = start("second", endless, "--resume");
  EXPECT_EQ(second->exit_code(), 138) << "it is worth another try when the first has ended";
  EXPECT_THAT(second->err(), HasSubstr("process " + std::to_string(first->pid()) + " on "));
  const auto third = start("third", endless, "--overwrite");
  EXPECT_EQ(third->exit_code(), 2);
  EXPECT_THAT(third->err(), HasSubstr("writes its checkpoints there; choose another directory"));
  first->signal(SIGKILL);
  first->exit_code();
  const auto fourth = start("fourth", endless, "--resume");
  ASSERT_TRUE(reaches_step(*fourth, 400)) << "the lock has ended with its process: " << fourth->err();
  fourth->signal(SIGTERM);
  EXPECT_EQ(fourth->exit_code(), 143);
}

TEST_F(RunsFaultTest, ADirectoryThatIsEmptiedUnderItsRunIsSaidAndStillOfThatRun) {
  const auto first = start("first", job(100000000).with({"metrics.progress_seconds=0.05"}));
  ASSERT_TRUE(reaches_step(*first, 300)) << first->err();
  const CheckpointRun run = latest_run();
  std::filesystem::rename(root(), directory() / "moved");
  ASSERT_TRUE(first->says("was emptied or replaced while run 1")) << first->err();
  first->signal(SIGTERM);
  EXPECT_EQ(first->exit_code(), 143);
  EXPECT_TRUE(read_run_file(root())->same_as(run));
  EXPECT_TRUE(latest_run().same_as(run));
}

}  // namespace
}  // namespace braid::integration
