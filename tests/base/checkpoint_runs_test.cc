// Runs of training in one checkpoint directory: who may begin, who goes on, and what is removed when.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "base/checkpoint.h"
#include "base/files.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Steps = std::vector<std::uint64_t>;

void save(CheckpointStore& store, const CheckpointRun& run, std::uint64_t step, std::size_t values = 8) {
  const auto temporary = store.begin(step);
  ShardWriter writer(temporary / "worker-0.shard");
  const std::vector<float> data(values, static_cast<float>(step));
  writer.add({"w", DType::Float32, {static_cast<std::int64_t>(values)}, values * sizeof(float)},
             std::as_bytes(std::span(data)));
  store.commit(temporary, {.step = step, .run = run, .job_name = "job"}, {writer.finish()});
}

Steps steps(const std::vector<CheckpointInfo>& all) {
  Steps out;
  for (const CheckpointInfo& info : all) out.push_back(info.meta.step);
  return out;
}

class CheckpointRunsTest : public ::testing::Test {
 protected:
  /// A run of its own with checkpoints of these steps.
  CheckpointRun run_with(const Steps& saved, RunStart how = RunStart::New) {
    const CheckpointRun run = store_.begin_run(how);
    for (const std::uint64_t step : saved) save(store_, run, step);
    return run;
  }

  TempDir dir_;
  CheckpointStore store_{dir_.path() / "checkpoints"};
};

TEST_F(CheckpointRunsTest, ARunHasANumberAnIdAndTheTimeWhenItBegan) {
  const auto before = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const CheckpointRun run = run_with({10});
  EXPECT_EQ(run.number, 1U);
  EXPECT_EQ(run.id.size(), 16U);
  EXPECT_GE(run.begun, before);
  const CheckpointRun stored = store_.newest()->meta.run;
  EXPECT_TRUE(stored.same_as(run));
  EXPECT_EQ(stored.begun, run.begun);
  CheckpointStore other(dir_.path() / "other");
  EXPECT_FALSE(other.begin_run(RunStart::New).same_as(run)) << "the same number, another run";
}

TEST_F(CheckpointRunsTest, ANewRunWhereCheckpointsAreIsRefusedWithTheThreeWaysOut) {
  run_with({200, 300, 400});
  EXPECT_ERROR(store_.begin_run(RunStart::New), InvalidArgument,
               AllOf(HasSubstr("has checkpoints of another run (run 1, begun "),
                     HasSubstr("job 'job', steps 200 to 400"), HasSubstr("--resume"),
                     HasSubstr("another checkpoint.directory"), HasSubstr("--overwrite")));
  EXPECT_EQ(steps(store_.list()), (Steps{200, 300, 400}));
}

TEST_F(CheckpointRunsTest, DamagedCheckpointsAreNotMixedWithThoseOfANewRunEither) {
  run_with({5});
  fs::remove(store_.root() / "step-000000000005/MANIFEST");
  EXPECT_ERROR(store_.begin_run(RunStart::New), InvalidArgument, HasSubstr("has damaged checkpoints"));
}

TEST_F(CheckpointRunsTest, ARunThatSavedNothingIsInNobodysWay) {
  const CheckpointRun first = run_with({});
  EXPECT_EQ(store_.begin_run(RunStart::New).number, first.number + 1);
}

TEST_F(CheckpointRunsTest, ResumingGoesOnWithTheSameRun) {
  const CheckpointRun run = run_with({10});
  for (const std::uint64_t step : {20ULL, 30ULL}) {
    const CheckpointRun again = store_.begin_run(RunStart::Resume);
    EXPECT_TRUE(again.same_as(run));
    save(store_, again, step);
  }
  EXPECT_EQ(steps(store_.list(run)), (Steps{10, 20, 30}));
}

TEST_F(CheckpointRunsTest, ResumingNothingBeginsARunThatCanBeResumedBeforeItsFirstCheckpoint) {
  const CheckpointRun run = store_.begin_run(RunStart::Resume);
  EXPECT_EQ(run.number, 1U);
  EXPECT_TRUE(store_.begin_run(RunStart::Resume).same_as(run));
}

TEST_F(CheckpointRunsTest, OverwritingKeepsTheRunBeforeUntilTheNewOneHasACheckpoint) {
  const CheckpointRun old = run_with({200, 300, 400});
  const CheckpointRun run = store_.begin_run(RunStart::Overwrite);
  EXPECT_TRUE(old.before(run));
  EXPECT_EQ(store_.newest()->meta.step, 400U) << "there is nothing better yet";
  const auto temporary = store_.begin(300);
  EXPECT_EQ(steps(store_.list()), (Steps{200, 300, 400})) << "not while it is written either";
  save(store_, run, 300);
  EXPECT_EQ(steps(store_.list()), (Steps{300}));
  EXPECT_TRUE(store_.newest()->meta.run.same_as(run));
  EXPECT_EQ(list_directory(store_.root()), (std::vector<fs::path>{"RUN", "step-000000000300"}));
}

TEST_F(CheckpointRunsTest, WhatWasInterruptedBeforeTheOldOnesWereRemovedIsCaughtUp) {
  const CheckpointRun old = run_with({400});
  const CheckpointRun run = run_with({150}, RunStart::Overwrite);
  // As if the process had been killed between the new checkpoint's name and the end of the old ones.
  CheckpointStore elsewhere(dir_.path() / "elsewhere");
  save(elsewhere, old, 400);
  fs::rename(elsewhere.root() / "step-000000000400", store_.root() / "step-000000000400");
  EXPECT_EQ(store_.newest()->meta.step, 150U) << "the newest of the latest run, not the one of most steps";
  const CheckpointRun resumed = store_.begin_run(RunStart::Resume);
  EXPECT_TRUE(resumed.same_as(run));
  store_.prune(1);
  EXPECT_EQ(steps(store_.list(old)), (Steps{400})) << "pruning counts a run's own";
  save(store_, resumed, 200);
  EXPECT_EQ(steps(store_.list()), (Steps{150, 200}));
}

TEST_F(CheckpointRunsTest, ResumingAnOverwritingRunWithoutACheckpointDoesNotGoBackToTheOldOne) {
  const CheckpointRun old = run_with({400});
  const CheckpointRun run = store_.begin_run(RunStart::Overwrite);
  const CheckpointRun resumed = store_.begin_run(RunStart::Resume);
  EXPECT_TRUE(resumed.same_as(run));
  EXPECT_TRUE(resumed.overwrites);
  EXPECT_TRUE(store_.list(resumed).empty());
  EXPECT_TRUE(store_.newest()->meta.run.same_as(old)) << "which predictions are still made with";
}

TEST_F(CheckpointRunsTest, PruningCountsTheLatestRunAlone) {
  const CheckpointRun old = run_with({1000});
  CheckpointRun run = make_run(2);  // does not overwrite
  write_run_file(store_.root(), run);
  for (const std::uint64_t step : {50ULL, 100ULL, 150ULL}) save(store_, run, step);
  store_.prune(2);
  EXPECT_EQ(steps(store_.list()), (Steps{1000, 100, 150}));
  EXPECT_EQ(store_.newest()->meta.step, 150U);
}

TEST_F(CheckpointRunsTest, CheckpointsFromBeforeRunsAreOneRunThatIsResumedAsSuch) {
  for (const std::uint64_t step : {10ULL, 20ULL}) save(store_, {}, step);
  EXPECT_ERROR(store_.begin_run(RunStart::New), InvalidArgument,
               HasSubstr("(a run from before runs had numbers, job 'job', steps 10 to 20)"));
  const CheckpointRun resumed = store_.begin_run(RunStart::Resume);
  EXPECT_EQ(resumed.number, 0U);
  save(store_, resumed, 30);
  store_.prune(2);
  EXPECT_EQ(steps(store_.list()), (Steps{20, 30}));
  EXPECT_THAT(read_file(store_.root() / "step-000000000030/MANIFEST"), Not(HasSubstr("run")));
  const CheckpointRun run = run_with({5}, RunStart::Overwrite);
  EXPECT_EQ(run.number, 1U);
  EXPECT_EQ(steps(store_.list()), (Steps{5}));
}

TEST_F(CheckpointRunsTest, ARunWhoseDirectoryWasTakenOverWritesNoMore) {
  const CheckpointRun first = run_with({10});
  const CheckpointRun second = run_with({5}, RunStart::Overwrite);
  EXPECT_ERROR(save(store_, first, 20), InvalidArgument,
               AllOf(HasSubstr("was taken over by run 2"), HasSubstr("this is run 1")));
  EXPECT_EQ(steps(store_.list()), (Steps{5}));
  EXPECT_TRUE(store_.newest()->meta.run.same_as(second));
}

TEST_F(CheckpointRunsTest, ACheckpointOfAnotherRunIsNotReplacedByOneThatDoesNotOverwrite) {
  run_with({10});
  const CheckpointRun second = make_run(2);
  write_run_file(store_.root(), second);
  EXPECT_ERROR(save(store_, second, 10), InvalidArgument,
               HasSubstr("step-000000000010' is a checkpoint of run 1"));
  EXPECT_EQ(store_.newest()->meta.run.number, 1U);
}

TEST_F(CheckpointRunsTest, ALostOrDamagedRunFileLeavesTheRunOfTheLatestCheckpoint) {
  const CheckpointRun run = run_with({10});
  fs::remove(store_.root() / "RUN");
  EXPECT_TRUE(store_.begin_run(RunStart::Resume).same_as(run));
  std::string text = read_file(store_.root() / "RUN");
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string flipped = text;
    flipped[i] = static_cast<char>(flipped[i] ^ 4);
    std::ofstream(store_.root() / "RUN") << flipped;
    ASSERT_TRUE(store_.current_run()->same_as(run)) << "byte " << i;
  }
  EXPECT_TRUE(store_.begin_run(RunStart::Resume).same_as(run));
  EXPECT_EQ(read_file(store_.root() / "RUN"), text) << "it is written anew";
}

/// A job that overwrites and is killed wherever it happens to be.
TEST_F(CheckpointRunsTest, KilledAtAnyMomentAnOverwritingRunLeavesAWholeCheckpoint) {
  for (int attempt = 0; attempt < 25; ++attempt) {
    const auto before = store_.newest();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        CheckpointStore store(store_.root());
        const CheckpointRun run = store.begin_run(RunStart::Overwrite);
        for (std::uint64_t step = 10;; step += 10) {
          save(store, run, step, 1 << 16);
          store.prune(2);
        }
      } catch (...) {
        ::_exit(1);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3 + 7 * attempt % 60));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it failed";
    const auto after = store_.newest();
    if (!before) continue;
    ASSERT_TRUE(after);
    ASSERT_FALSE(after->meta.run.before(before->meta.run));
    for (const CheckpointInfo& info : store_.list()) ShardReader(info.directory / "worker-0.shard").verify();
  }
  EXPECT_GT(store_.newest()->meta.run.number, 1U) << "no run came to its first checkpoint";
}

}  // namespace
}  // namespace braid
