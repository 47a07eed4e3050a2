// The queue of batches alone, with a clock of the test's: who gets what, what is done, what comes back.
#include "ps/server/work_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "base/error.h"

namespace braid::ps {
namespace {

using Kind = QueueAnswer::Kind;
using std::chrono::seconds;

constexpr auto kPatience = seconds(60);

/// A worker's process that says all that it has, as it must.
class Taker {
 public:
  Taker(WorkQueue& queue, int worker, std::uint64_t session)
      : queue_(queue), worker_(worker), session_(session) {}

  QueueAnswer take(WorkQueue::Clock::time_point now) { return talk(now, true); }
  QueueAnswer tell(WorkQueue::Clock::time_point now) { return talk(now, false); }
  QueueAnswer leave(WorkQueue::Clock::time_point now, bool ends = false) {
    QueueCall call = next_call();
    call.leaves = true;
    call.ends = ends;
    return hear(queue_.talk(call, now));
  }
  /// A take whose answer gets lost.
  void take_in_vain(WorkQueue::Clock::time_point now) {
    QueueCall call = next_call();
    call.wants = true;
    queue_.talk(call, now);
  }
  /// Finishes up to so many batches, in their order. Result: which.
  std::vector<std::uint64_t> finish(std::uint64_t batches) {
    std::vector<std::uint64_t> done;
    for (auto& [unit, count] : units_)
      while (batches > 0 && count < unit.count) {
        done.push_back(unit.first + count++);
        --batches;
      }
    return done;
  }
  std::uint64_t has() const {
    std::uint64_t left = 0;
    for (const auto& [unit, done] : units_) left += unit.count - done;
    return left;
  }

 private:
  QueueCall next_call() {
    QueueCall call{.worker = worker_, .session = session_, .number = ++number_, .life = life_, .held = {}};
    for (const auto& [unit, done] : units_) call.held.push_back({unit.id, unit.first, done});
    return call;
  }
  QueueAnswer talk(WorkQueue::Clock::time_point now, bool wants) {
    QueueCall call = next_call();
    call.wants = wants;
    return hear(queue_.talk(call, now));
  }
  QueueAnswer hear(QueueAnswer answer) {
    std::erase_if(units_, [&](const auto& held) {
      return held.second == held.first.count ||
             std::ranges::find(answer.revoked, held.first.id) != answer.revoked.end();
    });
    life_ = answer.life;
    if (answer.kind == Kind::Unit) units_.emplace_back(answer.unit, 0);
    return answer;
  }

  WorkQueue& queue_;
  const int worker_;
  const std::uint64_t session_;
  std::uint64_t number_ = 0, life_ = 0;
  std::deque<std::pair<BatchUnit, std::uint64_t>> units_;  // and how many of it are done
};

class WorkQueueTest : public ::testing::Test {
 protected:
  /// 100 batches, 40 an epoch, 8 at a time, two workers.
  WorkQueue queue_{
      {.epoch_batches = 40, .total = 100, .take = 8, .batch_rows = 4, .workers = 2}, {}, 7, kPatience};
  WorkQueue::Clock::time_point now_{};
};

void expect_unit(const QueueAnswer& answer, std::uint64_t first, std::uint64_t count) {
  ASSERT_EQ(answer.kind, Kind::Unit);
  EXPECT_EQ(answer.unit.first, first);
  EXPECT_EQ(answer.unit.count, count);
}

TEST_F(WorkQueueTest, GivesEachBatchOnceInOrderAndThenEnds) {
  Taker a(queue_, 0, 1), b(queue_, 1, 1);
  expect_unit(a.take(now_), 0, 8);
  expect_unit(b.take(now_), 8, 8);
  expect_unit(b.take(now_), 16, 8);
  std::vector<std::uint64_t> done;
  for (int turn = 0;; ++turn) {
    Taker& taker = turn % 3 == 0 ? a : b;
    for (const std::uint64_t batch : taker.finish(100)) done.push_back(batch);
    const QueueAnswer answer = taker.take(now_);
    if (answer.kind == Kind::End) break;
    ASSERT_LT(turn, 1000);
  }
  std::ranges::sort(done);
  ASSERT_EQ(done.size(), 100U);
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(done[i], i);
}

TEST_F(WorkQueueTest, AUnitEndsWithTheEpochAndGetsSmallerTowardsTheEnd) {
  Taker a(queue_, 0, 1);
  std::vector<BatchUnit> units;
  for (QueueAnswer answer = a.take(now_); answer.kind == Kind::Unit; answer = a.take(now_)) {
    units.push_back(answer.unit);
    a.finish(100);
  }
  std::uint64_t at = 0;
  for (const BatchUnit& unit : units) {
    EXPECT_EQ(unit.first, at);
    at += unit.count;
    EXPECT_LE((at - 1) / 40, unit.first / 40) << "a unit of two epochs";
  }
  EXPECT_EQ(at, 100U);
  EXPECT_EQ(units.back().count, 1U);
}

TEST_F(WorkQueueTest, WaitsUntilWhatOthersHaveIsDone) {
  WorkQueue queue({.epoch_batches = 2, .total = 2, .take = 1, .workers = 2}, {}, 1, kPatience);
  Taker a(queue, 0, 1), b(queue, 1, 1);
  expect_unit(a.take(now_), 0, 1);
  expect_unit(b.take(now_), 1, 1);
  b.finish(1);
  EXPECT_EQ(b.take(now_).kind, Kind::Wait);
  EXPECT_EQ(a.take(now_).kind, Kind::Wait) << "its own is not done";
  a.finish(1);
  EXPECT_EQ(a.take(now_).kind, Kind::End);
  EXPECT_EQ(b.take(now_).kind, Kind::End);
}

TEST_F(WorkQueueTest, AProcessThatIsStartedAgainGetsWhatTheFormerOneHadNotDoneFirst) {
  Taker a(queue_, 0, 1), b(queue_, 1, 1);
  expect_unit(a.take(now_), 0, 8);
  expect_unit(b.take(now_), 8, 8);
  EXPECT_EQ(a.finish(3).size(), 3U);
  a.tell(now_);
  Taker again(queue_, 0, 2);
  expect_unit(again.take(now_), 3, 5);
  expect_unit(again.take(now_), 16, 8);
  EXPECT_THROW(a.take(now_), Unavailable);
}

TEST_F(WorkQueueTest, WhatASilentWorkerHasIsGivenToOthersAndRevoked) {
  Taker a(queue_, 0, 1), b(queue_, 1, 1);
  expect_unit(a.take(now_), 0, 8);
  a.finish(2);
  a.tell(now_);
  expect_unit(b.take(now_ + kPatience - seconds(1)), 8, 8);
  expect_unit(b.take(now_ + kPatience), 2, 6);
  // It was only slow: of what it says now, two are b's already.
  a.finish(4);
  const QueueAnswer answer = a.take(now_ + kPatience + seconds(1));
  EXPECT_EQ(answer.revoked.size(), 1U);
  expect_unit(answer, 16, 8);
  EXPECT_EQ(a.has(), 8U);
}

TEST_F(WorkQueueTest, WhatASilentWorkerHasDoneIsDoneUnlessAnotherHasBegunIt) {
  Taker a(queue_, 0, 1), b(queue_, 1, 1);
  expect_unit(a.take(now_), 0, 8);
  b.tell(now_ + kPatience);  // a is given up
  a.finish(5);
  expect_unit(a.take(now_ + kPatience), 5, 3);
}

TEST_F(WorkQueueTest, AnAnswerThatGotLostIsGivenAgain) {
  Taker a(queue_, 0, 1);
  a.take_in_vain(now_);
  expect_unit(a.take(now_), 0, 8);
  a.take_in_vain(now_);
  a.finish(8);
  expect_unit(a.take(now_), 8, 8);
}

TEST_F(WorkQueueTest, ACallThatComesBehindALaterOneIsRefused) {
  Taker a(queue_, 0, 1);
  a.take(now_);
  QueueCall late{.worker = 0, .session = 1, .number = 1, .held = {}};
  EXPECT_THROW(queue_.talk(late, now_), Unavailable);
}

TEST_F(WorkQueueTest, AWorkerThatLeavesGivesBack) {
  Taker a(queue_, 0, 1), b(queue_, 1, 1);
  expect_unit(a.take(now_), 0, 8);
  a.finish(1);
  a.leave(now_);
  expect_unit(b.take(now_), 1, 7);
}

TEST_F(WorkQueueTest, WhenTheLeaderWantsNoMoreNobodyGetsAny) {
  Taker a(queue_, 0, 1), b(queue_, 1, 1);
  expect_unit(a.take(now_), 0, 8);
  a.leave(now_, true);
  EXPECT_EQ(b.take(now_).kind, Kind::End);
}

TEST_F(WorkQueueTest, AnUnknownWorkerAndAPlanThatCannotBeAreRefused) {
  EXPECT_THROW(Taker(queue_, 2, 1).take(now_), InvalidArgument);
  EXPECT_THROW(Taker(queue_, -1, 1).take(now_), InvalidArgument);
  for (const QueuePlan& plan :
       {QueuePlan{.epoch_batches = 0}, QueuePlan{.total = 0}, QueuePlan{.take = 0},
        QueuePlan{.batch_rows = 0}, QueuePlan{.workers = 0}, QueuePlan{.total = UINT64_MAX}})
    EXPECT_THROW(WorkQueue(plan, {}, 1, kPatience), InvalidArgument);
}

TEST_F(WorkQueueTest, TheStateGoesThroughTextAndGivesTheRest) {
  Taker a(queue_, 0, 1), b(queue_, 1, 1);
  a.take(now_);
  b.take(now_);
  b.take(now_);
  a.finish(2);
  b.finish(9);
  a.tell(now_);
  b.tell(now_);
  const std::string text = queue_.state().text();
  EXPECT_EQ(text, "queue batch=4 epoch_batches=40 next=24 open=2-8,17-24");
  WorkQueue again(queue_.plan(), QueueState::parse(text), 8, kPatience);
  EXPECT_EQ(again.state().text(), text);
  Taker c(again, 1, 5);
  expect_unit(c.take(now_), 2, 6);
  expect_unit(c.take(now_), 17, 7);
  expect_unit(c.take(now_), 24, 8);
}

TEST_F(WorkQueueTest, AnotherLifeOfTheQueueRevokesWhatIsFromTheFormerOne) {
  Taker a(queue_, 0, 1);
  expect_unit(a.take(now_), 0, 8);
  WorkQueue restored(queue_.plan(), {}, 8, kPatience);
  QueueCall call{.worker = 0, .session = 1, .number = 5, .life = 7, .held = {{1, 0, 8}}, .wants = true};
  const QueueAnswer answer = restored.talk(call, now_);
  EXPECT_EQ(answer.revoked, (std::vector<std::uint64_t>{1}));
  expect_unit(answer, 0, 8);
}

TEST(QueueStateTest, OtherBatchesOfTheSameRowsAreOpenWhereOneOfTheirRowsIs) {
  // Epochs of 40 rows: 10 batches of 4, 6 of 6, 5 of 8.
  const QueueState state = QueueState::parse("queue batch=4 epoch_batches=10 next=17 open=2-4,9-11");
  // Rows 8 to 16 of epoch 0 are open, 36 to 40, and 0 to 4 of epoch 1; done is all else before row 28 of it.
  EXPECT_EQ(state.in_batches_of(8, 5).text(), "queue batch=8 epoch_batches=5 next=8 open=1-2,4-6");
  EXPECT_EQ(state.in_batches_of(6, 6).text(), "queue batch=6 epoch_batches=6 next=10 open=1-3,6-7");
  EXPECT_EQ(state.in_batches_of(2, 20).text(), "queue batch=2 epoch_batches=20 next=34 open=4-8,18-22");
  EXPECT_EQ(state.in_batches_of(4, 10).text(), state.text());
}

TEST(QueueStateTest, TextThatIsNoStateIsRefused) {
  for (const char* text :
       {"", "ticket=3", "queue", "queue batch=0 epoch_batches=1 next=0 open=",
        "queue batch=1 epoch_batches=0 next=0 open=", "queue batch=1 epoch_batches=9 next=8 open=2-2",
        "queue batch=1 epoch_batches=9 next=8 open=2-9", "queue batch=1 epoch_batches=9 next=8 open=2-4,",
        "queue batch=1 epoch_batches=9 next=8 open=2-4x", "queue batch=-1 epoch_batches=9 next=8 open=",
        "queue batch=1 epoch_batches=9 next=99999999999999999999 open="})
    EXPECT_THROW(QueueState::parse(text), DataLoss) << text;
}

TEST(BatchRangesTest, AgreesWithASetOfNumbers) {
  std::mt19937 random(5);
  BatchRanges ranges;
  std::vector<bool> in(64);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t first = random() % 64, end = first + random() % (65 - first);
    const bool adds = random() % 2 == 0;
    adds ? ranges.add(first, end) : ranges.remove(first, end);
    for (std::uint64_t n = first; n < end; ++n) in[n] = adds;
    std::vector<bool> has(64);
    std::uint64_t last = UINT64_MAX;
    for (const auto& [begin, stop] : ranges.all()) {
      ASSERT_LT(begin, stop);
      ASSERT_NE(begin, last) << "two ranges that are one";
      last = stop;
      for (std::uint64_t n = begin; n < stop; ++n) has[n] = true;
    }
    ASSERT_EQ(has, in);
    ASSERT_EQ(ranges.size(), static_cast<std::uint64_t>(std::ranges::count(in, true)));
  }
}

/// Workers that take, work, get slow, lose answers, die and are started again, and a queue that is saved and
/// restored among them: each batch is done, and more than once only where somebody has died or was given up.
TEST(WorkQueueRandomTest, EveryBatchIsDoneWhateverHappens) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const int workers = 1 + static_cast<int>(random() % 4);
    const bool faults = seed % 2 == 1;
    const QueuePlan plan{.epoch_batches = 1 + random() % 50,
                         .total = 1 + random() % 200,
                         .take = 1 + random() % 20,
                         .workers = workers};
    WorkQueue queue(plan, {}, 1, kPatience);
    WorkQueue::Clock::time_point now{};
    std::uint64_t session = 0;
    std::deque<std::optional<Taker>> takers;
    for (int w = 0; w < workers; ++w) takers.emplace_back(std::in_place, queue, w, ++session);
    std::map<std::uint64_t, int> done;
    int ended = 0;
    for (int turn = 0; ended < 3 * workers; ++turn) {
      ASSERT_LT(turn, 100000) << "seed " << seed;
      const int w = static_cast<int>(random() % static_cast<unsigned>(workers));
      Taker& taker = *takers[static_cast<std::size_t>(w)];
      now += seconds(1);
      for (const std::uint64_t batch : taker.finish(random() % 6)) ++done[batch];
      switch (faults ? random() % 12 : 11) {
        case 0:
          takers[static_cast<std::size_t>(w)].emplace(queue, w, ++session);
          break;
        case 1:
          taker.take_in_vain(now);
          break;
        case 2:
          now += kPatience * 2;
          break;
        default:
          ended = taker.take(now).kind == Kind::End ? ended + 1 : 0;
      }
    }
    ASSERT_EQ(done.size(), plan.total) << "seed " << seed;
    for (const auto& [batch, times] : done) ASSERT_TRUE(faults || times == 1) << seed << ", batch " << batch;
  }
}

}  // namespace
}  // namespace braid::ps
