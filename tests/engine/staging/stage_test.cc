#include "engine/staging/stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "base/error.h"
#include "tests/engine/staging/stage_test_util.h"

namespace braid::testing {
namespace {

using namespace std::chrono_literals;

TEST(StageTest, KeepsOrderWithManyThreadsAndRandomDelays) {
  for (int threads : {1, 2, 4}) {
    Stage stage({.name = "s", .capacity = 3, .num_threads = threads}, [](std::uint64_t ticket) {
      std::minstd_rand random(static_cast<unsigned>(ticket + 1));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      if (ticket >= 200) throw OutOfRange("done");
      return numbered(ticket);
    });
    stage.start();
    for (std::uint64_t t = 0; t < 200; ++t) ASSERT_EQ(stage.take(soon()).ticket, t);
    EXPECT_THROW(stage.take(soon()), OutOfRange);
    EXPECT_THROW(stage.take(soon()), OutOfRange) << "the end stays the end";
  }
}

TEST(StageTest, NeverHoldsMoreThanItsCapacity) {
  std::atomic<int> alive{0}, most{0};
  struct Counted {
    std::atomic<int>& n;
    ~Counted() { --n; }
  };
  Stage stage({.name = "s", .capacity = 3, .num_threads = 4}, [&](std::uint64_t ticket) {
    int now = ++alive;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
    }
    Batch batch = numbered(ticket);
    batch.block = std::shared_ptr<Counted>(new Counted{alive});
    return batch;
  });
  stage.start();
  for (int i = 0; i < 300; ++i) {
    if (i % 50 == 0) {
      ASSERT_TRUE(eventually([&] { return alive == 3 + 4; })) << "the capacity, and one a thread";
    }
    stage.take(soon());
  }
  EXPECT_LE(most, 3 + 4 + 1) << "and the one in the taker's hands";
  EXPECT_LE(stage.stats().most_ready, 3);
}

TEST(StageTest, DeliversTheProducersOwnErrorAtItsTicket) {
  Stage stage({.name = "s", .capacity = 4, .num_threads = 2}, [](std::uint64_t ticket) {
    if (ticket == 5) throw DataLoss("'file' line 17: bad");
    return numbered(ticket);
  });
  stage.start();
  for (std::uint64_t t = 0; t < 5; ++t) EXPECT_EQ(stage.take(soon()).ticket, t);
  EXPECT_EQ(message_of<DataLoss>([&] { stage.take(soon()); }), "'file' line 17: bad");
  EXPECT_EQ(message_of<DataLoss>([&] { stage.take(soon()); }), "'file' line 17: bad");
}

TEST(StageTest, TakeBeforeStartIsAnErrorAndNotAHang) {
  Stage stage({.name = "input"}, numbered);
  EXPECT_THAT(message_of<InvalidArgument>([&] { stage.take(soon()); }),
              ::testing::HasSubstr("'input' was not started"));
}

TEST(StageTest, TimeoutNamesTheStageAndTheBatch) {
  std::atomic<bool> release{false};
  Stage stage({.name = "slow", .timeout_millis = 30ms}, [&](std::uint64_t ticket) {
    while (!release) std::this_thread::sleep_for(1ms);
    return numbered(ticket);
  });
  stage.start(7);
  EXPECT_THAT(message_of<DeadlineExceeded>([&] { stage.take(soon()); }),
              ::testing::AllOf(::testing::HasSubstr("'slow'"), ::testing::HasSubstr("batch 7")));
  release = true;
}

TEST(StageTest, CloseDrainsWhatWasBegunAndThenEnds) {
  Stage stage({.name = "s", .capacity = 3}, numbered);
  stage.start();
  EXPECT_EQ(stage.take(soon()).ticket, 0U);
  ASSERT_TRUE(eventually([&] { return stage.stats().ready == 3; }));
  stage.close();
  std::uint64_t next = 1;
  EXPECT_THROW(
      for (;;) {
        EXPECT_EQ(stage.take(soon()).ticket, next);
        ++next;
      },
      OutOfRange);
  EXPECT_GE(next, 4U) << "batches that were ready were lost";
}

TEST(StageTest, CancelEndsAWaitingTakeAtOnce) {
  std::atomic<bool> release{false};
  Stage stage({.name = "s"}, [&](std::uint64_t ticket) {
    while (!release) std::this_thread::sleep_for(1ms);
    return numbered(ticket);
  });
  stage.start();
  std::jthread canceller([&] {
    std::this_thread::sleep_for(20ms);
    stage.cancel();
  });
  EXPECT_THROW(stage.take(soon()), Cancelled) << "and no DeadlineExceeded after a minute";
  release = true;
}

TEST(StageTest, OpensAndClosesAThousandTimes) {
  Stage stage({.name = "s", .capacity = 2, .num_threads = 2}, numbered);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    stage.start(i);
    EXPECT_EQ(stage.take(soon()).ticket, i);
    if (i % 2 == 0)
      stage.close();
    else
      stage.cancel();
  }
}

TEST(StageTest, ConcurrentTakersGetDistinctBatchesAndAllSeeTheEnd) {
  Stage stage({.name = "s", .capacity = 4, .num_threads = 2}, [](std::uint64_t ticket) {
    if (ticket >= 500) throw OutOfRange("done");
    return numbered(ticket);
  });
  stage.start();
  std::atomic<std::uint64_t> sum{0};
  std::atomic<int> count{0}, ends{0};
  {
    std::vector<std::jthread> takers;
    for (int t = 0; t < 4; ++t)
      takers.emplace_back([&] {
        try {
          for (;;) {
            sum += stage.take(soon()).ticket;
            ++count;
          }
        } catch (const OutOfRange&) {
          ++ends;
        }
      });
  }
  EXPECT_EQ(count, 500);
  EXPECT_EQ(sum, 500U * 499U / 2);
  EXPECT_EQ(ends, 4);
}

TEST(StageTest, RefusesNonsenseOptions) {
  EXPECT_THROW(Stage({.name = "s", .capacity = 0}, numbered), InvalidArgument);
  EXPECT_THROW(Stage({.name = "s", .num_threads = 0}, numbered), InvalidArgument);
  EXPECT_THROW(Stage({.name = "s", .num_threads = 100000}, numbered), InvalidArgument);
  const auto forever = std::chrono::milliseconds::max();
  EXPECT_THROW(Stage({.name = "s", .timeout_millis = forever}, numbered), InvalidArgument);
  Stage patient({.name = "s", .timeout_millis = std::chrono::hours(24) * 36500}, numbered);
  patient.start();
  EXPECT_EQ(patient.take(soon()).ticket, 0U);
  EXPECT_EQ(patient.take(soon()).ticket, 1U) << "a thread that waited for room";
}

TEST(StageTest, CountsWhatItDid) {
  Stage stage({.name = "s", .capacity = 2}, [](std::uint64_t ticket) {
    std::this_thread::sleep_for(2ms);
    return numbered(ticket);
  });
  stage.start();
  for (int i = 0; i < 10; ++i) stage.take(soon());
  const StageStats stats = stage.stats();
  EXPECT_EQ(stats.taken, 10U);
  EXPECT_GE(stats.threads.at(0).busy_seconds, 0.020);
}

TEST(StageTest, CountsHowLongTakersWait) {
  std::atomic<bool> waits{false};
  Stage stage({.name = "s"}, [&](std::uint64_t ticket) {
    while (ticket == 0 && !waits) std::this_thread::sleep_for(1ms);
    return numbered(ticket);
  });
  stage.start();
  std::jthread taker([&] { stage.take(soon()); });
  ASSERT_TRUE(eventually([&] { return stage.stats().late_takes == 1; }));
  std::this_thread::sleep_for(5ms);
  waits = true;
  taker.join();
  EXPECT_GE(stage.stats().take_wait_seconds, 0.005);
}

}  // namespace
}  // namespace braid::testing
