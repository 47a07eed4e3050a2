#include "base/bounded_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/support/expect_error.h"

namespace braid {
namespace {

using namespace std::chrono_literals;

WaitContext soon() { return WaitContext::with_timeout(30ms); }
WaitContext later() { return WaitContext::with_timeout(20s); }

TEST(BoundedQueueTest, KeepsTheOrder) {
  BoundedQueue<int> queue(3, "queue");
  EXPECT_EQ(queue.capacity(), 3U);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.push(i, soon()));
  EXPECT_EQ(queue.size(), 3U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(queue.pop(soon()), i);
  EXPECT_EQ(queue.size(), 0U);
}

TEST(BoundedQueueTest, WaitsEndWithTheirDeadlineAndNameTheQueue) {
  BoundedQueue<int> queue(1, "stage 'input'");
  EXPECT_ERROR(queue.pop(soon()), DeadlineExceeded, "stage 'input': waiting for an item: deadline exceeded");
  EXPECT_TRUE(queue.push(1, soon()));
  EXPECT_ERROR(queue.push(2, soon()), DeadlineExceeded, "stage 'input': waiting for room: deadline exceeded");
  EXPECT_EQ(queue.pop(soon()), 1);
}

TEST(BoundedQueueTest, AStopRequestEndsAWait) {
  BoundedQueue<int> queue(1, "queue");
  std::stop_source stop;
  std::thread stopper([&] {
    std::this_thread::sleep_for(20ms);
    stop.request_stop();
  });
  EXPECT_ERROR(queue.pop(WaitContext::with_timeout(20s, stop.get_token())), Cancelled,
               "queue: waiting for an item: cancelled");
  stopper.join();
}

TEST(BoundedQueueTest, WhatIsThereIsGivenEvenAfterDeadlineAndStop) {
  BoundedQueue<int> queue(1, "queue");
  std::stop_source stop;
  stop.request_stop();
  const auto over = WaitContext::with_timeout(-1s, stop.get_token());
  EXPECT_TRUE(queue.push(5, over));
  EXPECT_EQ(queue.pop(over), 5);
}

TEST(BoundedQueueTest, CloseDrainsAndThenEnds) {
  BoundedQueue<int> queue(4, "queue");
  queue.push(1, soon());
  queue.push(2, soon());
  queue.close();
  EXPECT_FALSE(queue.is_open());
  EXPECT_FALSE(queue.push(3, soon()));
  EXPECT_EQ(queue.pop(soon()), 1);
  EXPECT_EQ(queue.pop(soon()), 2);
  EXPECT_EQ(queue.pop(soon()), std::nullopt);
  EXPECT_EQ(queue.pop(soon()), std::nullopt);
}

TEST(BoundedQueueTest, CancelDropsAndEndsAtOnce) {
  BoundedQueue<std::shared_ptr<int>> queue(4, "queue");
  auto item = std::make_shared<int>(1);
  queue.push(item, soon());
  queue.cancel();
  EXPECT_EQ(item.use_count(), 1);
  EXPECT_EQ(queue.pop(soon()), std::nullopt);
  EXPECT_FALSE(queue.push(item, soon()));
}

TEST(BoundedQueueTest, TheFirstErrorReachesBothSidesAfterTheItems) {
  BoundedQueue<int> queue(4, "queue");
  queue.push(1, soon());
  queue.close(make_error(ErrorCode::DataLoss, "train.csv:7: bad row"));
  queue.close(make_error(ErrorCode::Internal, "a consequence"));
  EXPECT_EQ(queue.pop(soon()), 1);
  EXPECT_ERROR(queue.pop(soon()), DataLoss, "train.csv:7: bad row");
  EXPECT_ERROR(queue.pop(soon()), DataLoss, "train.csv:7: bad row");
  EXPECT_ERROR(queue.push(2, soon()), DataLoss, "train.csv:7: bad row");
}

TEST(BoundedQueueTest, ACancelAfterACloseDropsTheRest) {
  BoundedQueue<int> queue(4, "queue");
  queue.push(1, soon());
  queue.close();
  queue.cancel();
  queue.close();
  EXPECT_EQ(queue.pop(soon()), std::nullopt);
}

TEST(BoundedQueueTest, ReopensAfterBothEnds) {
  BoundedQueue<int> queue(4, "queue");
  queue.push(1, soon());
  queue.close(make_error(ErrorCode::Internal, "gone"));
  queue.reopen();
  EXPECT_TRUE(queue.push(2, soon()));
  EXPECT_EQ(queue.pop(soon()), 1);
  queue.cancel();
  queue.reopen();
  EXPECT_TRUE(queue.push(3, soon()));
  EXPECT_EQ(queue.pop(soon()), 3);
}

TEST(BoundedQueueTest, EndsWakeEveryWaiter) {
  for (bool cancel : {false, true}) {
    BoundedQueue<int> empty(1, "empty"), full(1, "full");
    full.push(0, soon());
    std::atomic<int> ended{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] { ended += empty.pop(later()) == std::nullopt; });
      threads.emplace_back([&] { ended += !full.push(1, later()); });
    }
    std::this_thread::sleep_for(20ms);
    cancel ? empty.cancel() : empty.close();
    cancel ? full.cancel() : full.close();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(ended, 6);
  }
}

TEST(BoundedQueueTest, TriesDoNotWait) {
  BoundedQueue<std::unique_ptr<int>> queue(1, "queue");
  EXPECT_EQ(queue.try_pop(), std::nullopt);
  auto a = std::make_unique<int>(1), b = std::make_unique<int>(2);
  EXPECT_TRUE(queue.try_push(a));
  EXPECT_EQ(a, nullptr);
  EXPECT_FALSE(queue.try_push(b));
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(**queue.try_pop(), 1);
  queue.close();
  EXPECT_FALSE(queue.try_push(b));
}

TEST(BoundedQueueTest, RefusesNoCapacity) { EXPECT_THROW(BoundedQueue<int>(0, "queue"), InvalidArgument); }

TEST(BoundedQueueTest, ManyProducersAndConsumersLoseAndRepeatNothing) {
  constexpr int kThreads = 4, kEach = 2000;
  for (std::size_t capacity : {1, 2, 64}) {
    BoundedQueue<int> queue(capacity, "queue");
    std::vector<std::thread> producers, consumers;
    std::vector<std::vector<int>> seen(kThreads);
    for (int t = 0; t < kThreads; ++t) {
      producers.emplace_back([&, t] {
        for (int i = 0; i < kEach; ++i) ASSERT_TRUE(queue.push(t * kEach + i, later()));
      });
      consumers.emplace_back([&, t] {
        while (auto item = queue.pop(later())) {
          ASSERT_LE(queue.size(), capacity);
          seen[t].push_back(*item);
        }
      });
    }
    for (std::thread& producer : producers) producer.join();
    queue.close();
    for (std::thread& consumer : consumers) consumer.join();
    std::vector<int> counts(kThreads * kEach);
    for (const auto& items : seen) {
      std::vector<int> last(kThreads, -1);
      for (int item : items) {
        ++counts[item];
        EXPECT_LT(last[item / kEach], item);  // a consumer sees each producer's items in order
        last[item / kEach] = item;
      }
    }
    EXPECT_EQ(counts, std::vector<int>(kThreads * kEach, 1));
  }
}

TEST(BoundedQueueTest, WaitsThatTimeOutTakeNoWakeUpFromOthers) {
  BoundedQueue<int> queue(1, "queue");
  std::atomic<int> got{0};
  std::vector<std::thread> consumers;
  for (int t = 0; t < 4; ++t)
    consumers.emplace_back([&, t] {
      for (;;) {
        try {
          if (!queue.pop(WaitContext::with_timeout(std::chrono::microseconds(50 * (t + 1))))) return;
          ++got;
        } catch (const DeadlineExceeded&) {
        }
      }
    });
  for (int i = 0; i < 500; ++i) queue.push(i, later());
  queue.close();
  for (std::thread& consumer : consumers) consumer.join();
  EXPECT_EQ(got, 500);
}

}  // namespace
}  // namespace braid
