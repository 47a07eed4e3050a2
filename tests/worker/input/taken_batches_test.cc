// Steps of several workers over one queue in this process, whose answers may be late, lost or errors.
#include "worker/input/taken_batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "ps/server/work_queue.h"

namespace braid::worker {
namespace {

using namespace std::chrono_literals;

class LocalQueue : public ps::BatchQueue {
 public:
  std::string open(const ps::QueuePlan& plan, const std::string& state, bool, const WaitContext&) override {
    std::lock_guard lock(mu_);
    queue_.emplace(plan,
                   state.empty() ? ps::QueueState{plan.batch_rows, plan.epoch_batches, 0, {}}
                                 : ps::QueueState::parse(state),
                   ++life_, 60s);
    return queue_->state().text();
  }
  ps::QueueAnswer talk(const ps::QueueCall& call, const WaitContext& wait) override {
    wait.check("[queue]");
    if (fails) throw Unavailable("[queue] the server is gone");
    std::lock_guard lock(mu_);
    if (!queue_)
      return {.kind = ps::QueueAnswer::Kind::NotOpen, .life = call.life, .revoked = {}, .unit = {}};
    ps::QueueAnswer answer = queue_->talk(call, ps::WorkQueue::Clock::now());
    if (loses && call.number % 3 == 0) throw DeadlineExceeded("[queue] no answer");
    return answer;
  }
  std::string state(const WaitContext&) override {
    std::lock_guard lock(mu_);
    return queue_->state().text();
  }

  std::atomic<bool> fails{false}, loses{false};

 private:
  std::mutex mu_;
  std::optional<ps::WorkQueue> queue_;
  std::uint64_t life_ = 0;
};

WaitContext soon() { return WaitContext::with_timeout(30s); }

class TakenBatchesTest : public ::testing::Test {
 protected:
  TakenBatchesOptions options(int worker, std::chrono::milliseconds deadline = 30s) const {
    return {.worker = worker, .deadline = deadline, .report = 20ms, .stop = stop_.get_token()};
  }
  /// Makes steps from `first` on until there are no more; the batches that they were of.
  static std::vector<std::uint64_t> make_all(TakenBatches& taken, std::uint64_t first,
                                             std::chrono::microseconds step_time) {
    std::vector<std::uint64_t> batches;
    try {
      for (std::uint64_t step = first;; ++step) {
        taken.await(step, {});
        batches.push_back(taken.batch_of(step));
        std::this_thread::sleep_for(step_time);
        taken.finish(step);
      }
    } catch (const OutOfRange&) {
    }
    return batches;
  }

  const ps::QueuePlan plan_{.epoch_batches = 100, .total = 300, .take = 8, .batch_rows = 4, .workers = 3};
  std::shared_ptr<LocalQueue> queue_ = std::make_shared<LocalQueue>();
  std::stop_source stop_;
};

TEST_F(TakenBatchesTest, AFastWorkerTakesMoreAndEachBatchIsMadeOnce) {
  for (const bool loses : {false, true}) {
    queue_->loses = loses;
    std::vector<std::vector<std::uint64_t>> batches(3);
    std::vector<std::jthread> workers;
    for (int w = 0; w < 3; ++w)
      workers.emplace_back([&, w] {
        TakenBatches taken(queue_, options(w));
        taken.begin(7);
        batches[static_cast<std::size_t>(w)] = make_all(taken, 7, w == 2 ? 6000us : 2000us);
        taken.leave(false, soon());
      });
    std::this_thread::sleep_for(10ms);
    queue_->open(plan_, "", false, soon());
    workers.clear();
    const std::size_t fast = std::min(batches[0].size(), batches[1].size());
    EXPECT_TRUE(loses || fast > batches[2].size() * 3 / 2) << fast << " and " << batches[2].size();
    std::vector<std::uint64_t> all;
    for (const auto& each : batches) all.insert(all.end(), each.begin(), each.end());
    std::ranges::sort(all);
    ASSERT_EQ(all.size(), 300U);
    for (std::uint64_t i = 0; i < 300; ++i) EXPECT_EQ(all[i], i);
    queue_ = std::make_shared<LocalQueue>();
  }
}

TEST_F(TakenBatchesTest, StepsThatAreAskedForInAnyOrderKeepTheirBatches) {
  queue_->open(plan_, "", false, soon());
  TakenBatches taken(queue_, options(0));
  taken.begin(0);
  taken.await(3, {});
  taken.await(1, {});
  for (std::uint64_t step = 0; step < 4; ++step) EXPECT_EQ(taken.batch_of(step), step);
  EXPECT_THROW(taken.batch_of(4), Internal);
  EXPECT_THROW(taken.finish(1), Internal);
  taken.finish(0);
  EXPECT_EQ(taken.batch_of(1), 1U);
  EXPECT_EQ(taken.next_taken(0), 1U);
  EXPECT_EQ(taken.next_taken(5), 5U);
  EXPECT_EQ(taken.next_taken(100), std::nullopt);
}

TEST_F(TakenBatchesTest, TheStateHasAllThatIsFinishedHere) {
  queue_->open(plan_, "", false, soon());
  TakenBatches taken(queue_, {.worker = 0, .report = 1h});
  taken.begin(0);
  taken.await(2, {});
  taken.finish(0);
  taken.finish(1);
  const std::string state = taken.state(soon());
  EXPECT_EQ(state.substr(0, state.find(" next=")), "queue batch=4 epoch_batches=100");
  EXPECT_NE(state.find(" open=2-"), std::string::npos) << state;
}

TEST_F(TakenBatchesTest, LeavingGivesBackWhatIsNotFinished) {
  queue_->open(plan_, "", false, soon());
  {
    TakenBatches taken(queue_, options(0));
    taken.begin(0);
    taken.await(4, {});
    for (std::uint64_t step = 0; step < 3; ++step) taken.finish(step);
    taken.leave(false, soon());
  }
  TakenBatches other(queue_, options(1));
  other.begin(0);
  other.await(0, {});
  EXPECT_EQ(other.batch_of(0), 3U);
}

TEST_F(TakenBatchesTest, TheLeadersEndIsEverybodys) {
  queue_->open(plan_, "", false, soon());
  TakenBatches taken(queue_, options(0)), other(queue_, options(1));
  taken.begin(0);
  taken.await(0, {});
  taken.leave(true, soon());
  other.begin(0);
  EXPECT_THROW(other.await(0, {}), OutOfRange);
}

TEST_F(TakenBatchesTest, AQueueThatIsSilentForTheDeadlineIsAnError) {
  queue_->open(plan_, "", false, soon());
  TakenBatches taken(queue_, options(0, 200ms));
  taken.begin(0);
  taken.await(0, {});
  queue_->fails = true;
  try {
    for (std::uint64_t step = 1;; ++step) taken.await(step, {});
  } catch (const Unavailable& error) {
    EXPECT_NE(error.message().find("the server is gone"), std::string::npos) << error.message();
  }
  taken.leave(false, soon());  // fails, and only says so
}

TEST_F(TakenBatchesTest, AShortSilenceIsNone) {
  queue_->open(plan_, "", false, soon());
  TakenBatches taken(queue_, options(0));
  taken.begin(0);
  queue_->fails = true;
  std::this_thread::sleep_for(150ms);
  queue_->fails = false;
  EXPECT_EQ(make_all(taken, 0, 0us).size(), 300U);
}

TEST_F(TakenBatchesTest, WaitsEndWhenTheProcessIsAskedToStopOrTheStageIsCancelled) {
  TakenBatches taken(queue_, options(0));  // its queue is not open
  taken.begin(0);
  std::stop_source cancelled;
  std::jthread later([&] {
    std::this_thread::sleep_for(30ms);
    cancelled.request_stop();
  });
  EXPECT_THROW(taken.await(0, cancelled.get_token()), Cancelled);
  stop_.request_stop();
  EXPECT_THROW(taken.await(0, {}), OutOfRange);
}

TEST_F(TakenBatchesTest, AQueueThatWasPutBackTakesWhatItHadGiven) {
  queue_->open(plan_, "", false, soon());
  TakenBatches taken(queue_, options(0));
  taken.begin(0);
  taken.await(0, {});
  queue_->open(plan_, "queue batch=4 epoch_batches=100 next=200 open=50-60", false, soon());
  std::vector<std::uint64_t> batches = make_all(taken, 0, 0us);
  ASSERT_GE(batches.size(), 110U);
  const std::size_t old = batches.size() - 110;  // that were made before it heard
  EXPECT_LE(old, 16U);
  std::vector<std::uint64_t> fresh(batches.begin() + static_cast<std::ptrdiff_t>(old), batches.end());
  std::ranges::sort(fresh);
  EXPECT_EQ(fresh.front(), 50U);
  EXPECT_EQ(fresh[10], 200U);
  EXPECT_EQ(fresh.back(), 299U);
}

}  // namespace
}  // namespace braid::worker
