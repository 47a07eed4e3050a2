// A reader that is slower than checkpoints are written and pruned still gets each of them, in order.
#include "worker/checkpoint/held_checkpoints.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace braid::worker {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class HeldCheckpointsTest : public ::testing::Test {
 protected:
  void save(std::uint64_t step, std::size_t keep) {
    const auto temporary = store_.begin(step);
    ShardWriter writer(temporary / "worker-0.shard");
    const std::vector<float> data(8, static_cast<float>(step));
    writer.add({"w", DType::Float32, {8}, 32}, std::as_bytes(std::span(data)));
    store_.commit(temporary, {.step = step, .run = run_, .job_name = "job"}, {writer.finish()});
    store_.prune(keep);
  }
  std::unique_ptr<HeldCheckpoints> hold() {
    return std::make_unique<HeldCheckpoints>(store_.root(), [this] { return store_.list(); });
  }
  static std::uint64_t value_of(const CheckpointInfo& info) {
    std::vector<float> data(8);
    ShardReader(info.directory / "worker-0.shard").read("w", std::as_writable_bytes(std::span(data)));
    return static_cast<std::uint64_t>(data[3]);
  }
  std::vector<std::string> hidden() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(store_.root()))
      if (entry.path().filename().string().starts_with(".evaluator"))
        names.push_back(entry.path().filename().string());
    return names;
  }

  TempDir dir_;
  CheckpointStore store_{dir_.path() / "checkpoints"};
  CheckpointRun run_ = store_.begin_run(RunStart::New);
};

TEST_F(HeldCheckpointsTest, PruningTakesNoneThatHasYetToBeRead) {
  const auto held = hold();
  for (std::uint64_t step = 1; step <= 10; ++step) save(step, 1);  // written faster than it is read
  ASSERT_EQ(store_.list().size(), 1U);
  std::vector<std::uint64_t> steps, values;
  while (const auto info = held->take(200ms)) {
    steps.push_back(info->meta.step);
    values.push_back(value_of(*info));
  }
  EXPECT_THAT(steps, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_EQ(values, steps) << "what each was, and not what is in its place now";
}

TEST_F(HeldCheckpointsTest, WhilePruningGoesOnEachComesOnceAndInOrder) {
  constexpr std::uint64_t kSteps = 100;
  const CheckpointStore seen(store_.root());
  HeldCheckpoints held(store_.root(), [&] { return seen.list(); });
  std::atomic<std::uint64_t> taken = 0;
  const std::jthread writer([&](const std::stop_token& stop) {
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      while (!stop.stop_requested() && step > taken + 20) std::this_thread::yield();  // more would be lost
      save(step, 1);
    }
  });
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    const auto info = held.take(10s);
    ASSERT_TRUE(info) << step;
    ASSERT_EQ(info->meta.step, step);
    ASSERT_EQ(value_of(*info), step);
    taken = step;
  }
}

TEST_F(HeldCheckpointsTest, PruningDoesNotTakeTheOneThatIsBeingRead) {
  const auto held = hold();
  save(1, 1);
  const auto info = held->take(5s);
  ASSERT_TRUE(info);
  save(2, 1);
  EXPECT_EQ(value_of(*info), 1U);
  EXPECT_EQ(held->take(5s)->meta.step, 2U) << "and what it left does not come once more";
  EXPECT_FALSE(held->take(0ms));
}

TEST_F(HeldCheckpointsTest, ThoseThatAreThereAtOnceComeInOrderToo) {
  for (const std::uint64_t step : {3, 1, 2}) save(step, 0);
  const auto held = hold();
  for (const std::uint64_t step : {1, 2, 3}) EXPECT_EQ(held->take(5s)->meta.step, step);
  EXPECT_FALSE(held->take(0ms));
}

TEST_F(HeldCheckpointsTest, NothingIsLeftBehind) {
  auto held = hold();
  save(1, 0);
  ASSERT_TRUE(held->take(5s));
  EXPECT_THAT(hidden(), ::testing::SizeIs(1));
  held.reset();
  EXPECT_THAT(hidden(), IsEmpty());
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ::waitpid(dead, nullptr, 0);
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof(host) - 1), 0);
  std::filesystem::create_directories(store_.root() /
                                      (std::string(".evaluator-") + host + "-" + std::to_string(dead)));
  held = hold();
  EXPECT_TRUE(held->take(5s));
  EXPECT_THAT(hidden(), ::testing::SizeIs(1)) << "its own, not that of a process that was killed";
}

TEST_F(HeldCheckpointsTest, AnotherRunMakesTheOneBeforeForgotten) {
  const auto held = hold();
  save(10, 0);
  ASSERT_EQ(held->take(5s)->meta.step, 10U);
  save(20, 0);
  run_ = store_.begin_run(RunStart::Overwrite);
  save(5, 0);
  EXPECT_EQ(held->take(5s)->meta.step, 5U);
  EXPECT_FALSE(held->take(100ms));
}

TEST_F(HeldCheckpointsTest, WhatGoesWrongWhileItLooksReachesTheReader) {
  save(1, 0);
  HeldCheckpoints held(store_.root(),
                       []() -> std::vector<CheckpointInfo> { throw Unavailable("the disk is gone"); });
  EXPECT_ERROR(held.take(5s), Unavailable, "the disk is gone");
}

}  // namespace
}  // namespace braid::worker
