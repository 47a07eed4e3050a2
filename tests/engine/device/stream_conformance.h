// What every kind of stream must do, as typed tests: StreamOrder for streams of hosts and of devices, and
// StreamControl (deadlines, stops, errors, waits that are enqueued before their record) for those of hosts. A
// kind joins with a harness:
//
//   struct Harness {
//     using Stream = ...;                                       // of which several can be made
//     using Event = ...;
//     static std::unique_ptr<Stream> make(const std::string& name);
//     static void launch(Stream&, std::function<void()>);       // host work in stream order
//     static void record(Stream&, Event&, std::uint64_t value);
//     static void wait(Stream&, Event&, std::uint64_t value, WaitContext);
//     static void synchronize(Stream&, const WaitContext&);     // throws the stream's error
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Host, StreamOrder, Harness);
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/wait_context.h"
#include "engine/device/event.h"

namespace braid::testing {

template <class Harness>
class StreamTests : public ::testing::Test {
 protected:
  static WaitContext soon() { return WaitContext::with_timeout(std::chrono::seconds(60)); }
  static void nap(int us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }
};

template <class Harness>
class StreamOrder : public StreamTests<Harness> {};
template <class Harness>
class StreamControl : public StreamTests<Harness> {};

TYPED_TEST_SUITE_P(StreamOrder);

TYPED_TEST_P(StreamOrder, WorkRunsInOrder) {
  auto stream = TypeParam::make("order");
  std::vector<int> seen;
  for (int i = 0; i < 1000; ++i) TypeParam::launch(*stream, [&seen, i] { seen.push_back(i); });
  TypeParam::synchronize(*stream, this->soon());
  ASSERT_EQ(seen.size(), 1000U);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
}

TYPED_TEST_P(StreamOrder, WhatWasWrittenBeforeARecordIsSeenAfterTheWait) {
  auto a = TypeParam::make("a"), b = TypeParam::make("b");
  typename TypeParam::Event there, back;
  std::uint64_t value = 0, sum = 0;  // plain memory: the events alone order the accesses
  for (std::uint64_t n = 1; n <= 500; ++n) {
    TypeParam::wait(*a, back, n - 1, this->soon());
    TypeParam::launch(*a, [&value, n] { value = n; });
    TypeParam::record(*a, there, n);
    TypeParam::wait(*b, there, n, this->soon());
    TypeParam::launch(*b, [&] { sum += value; });
    TypeParam::record(*b, back, n);
  }
  TypeParam::synchronize(*b, this->soon());
  EXPECT_EQ(sum, 500U * 501U / 2);
}

TYPED_TEST_P(StreamOrder, AStreamWaitsForAnotherAndRunsOnAfterwards) {
  auto slow = TypeParam::make("slow"), fast = TypeParam::make("fast");
  typename TypeParam::Event event;
  std::atomic<bool> slow_done{false};
  bool ordered = false;
  TypeParam::launch(*slow, [&] {
    this->nap(20000);
    slow_done = true;
  });
  TypeParam::record(*slow, event, 1);
  TypeParam::wait(*fast, event, 1, this->soon());
  TypeParam::launch(*fast, [&] { ordered = slow_done; });
  TypeParam::synchronize(*fast, this->soon());
  EXPECT_TRUE(ordered);
}

TYPED_TEST_P(StreamOrder, WhatIsQueuedRunsBeforeAStreamEnds) {
  int ran = 0;
  {
    auto stream = TypeParam::make("ending");
    for (int i = 0; i < 100; ++i) TypeParam::launch(*stream, [&] { ++ran; });
  }
  EXPECT_EQ(ran, 100);
}

TYPED_TEST_P(StreamOrder, ARingOfStreamsKeepsTheOrderOfItsEvents) {
  constexpr std::size_t kStreams = 6;
  constexpr std::uint64_t kRounds = 200;
  std::vector<std::unique_ptr<typename TypeParam::Stream>> streams;
  for (std::size_t s = 0; s < kStreams; ++s) streams.push_back(TypeParam::make("ring" + std::to_string(s)));
  std::vector<typename TypeParam::Event> events(kStreams);
  std::uint64_t token = 0;  // plain: handed round
  std::minstd_rand random(7);
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    for (std::size_t s = 0; s < kStreams; ++s) {
      const std::size_t before = (s + kStreams - 1) % kStreams;
      TypeParam::wait(*streams[s], events[before], s == 0 ? round - 1 : round, this->soon());
      const int delay = random() % 16 == 0 ? 50 : 0;
      TypeParam::launch(*streams[s], [this, &token, delay, expected = (round - 1) * kStreams + s] {
        if (delay) this->nap(delay);
        EXPECT_EQ(token, expected);
        ++token;
      });
      TypeParam::record(*streams[s], events[s], round);
    }
  }
  for (auto& stream : streams) TypeParam::synchronize(*stream, this->soon());
  EXPECT_EQ(token, kRounds * kStreams);
}

REGISTER_TYPED_TEST_SUITE_P(StreamOrder, WorkRunsInOrder, WhatWasWrittenBeforeARecordIsSeenAfterTheWait,
                            AStreamWaitsForAnotherAndRunsOnAfterwards, WhatIsQueuedRunsBeforeAStreamEnds,
                            ARingOfStreamsKeepsTheOrderOfItsEvents);

TYPED_TEST_SUITE_P(StreamControl);

TYPED_TEST_P(StreamControl, StreamsRunSideBySide) {
  // Each waits for a signal that only the other gives.
  auto a = TypeParam::make("a"), b = TypeParam::make("b");
  Event from_a, from_b;
  TypeParam::record(*a, from_a, 1);
  TypeParam::wait(*a, from_b, 1, this->soon());
  TypeParam::record(*b, from_b, 1);
  TypeParam::wait(*b, from_a, 1, this->soon());
  TypeParam::synchronize(*a, this->soon());
  TypeParam::synchronize(*b, this->soon());
}

TYPED_TEST_P(StreamControl, AnEventSatisfiesEarlierSteps) {
  auto stream = TypeParam::make("steps");
  Event event;
  TypeParam::record(*stream, event, 7);
  TypeParam::record(*stream, event, 3);  // never goes back
  TypeParam::synchronize(*stream, this->soon());
  EXPECT_EQ(event.value(), 7U);
  int ran = 0;
  for (std::uint64_t n = 0; n <= 7; ++n) TypeParam::wait(*stream, event, n, this->soon());
  TypeParam::launch(*stream, [&] { ++ran; });
  TypeParam::synchronize(*stream, this->soon());
  EXPECT_EQ(ran, 1);
}

TYPED_TEST_P(StreamControl, SynchronizeEndsAtItsDeadline) {
  auto stream = TypeParam::make("late");
  Event event;
  TypeParam::wait(*stream, event, 1, this->soon());
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(TypeParam::synchronize(*stream, WaitContext::with_timeout(std::chrono::milliseconds(30))),
               DeadlineExceeded);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  event.signal(1);
  TypeParam::synchronize(*stream, this->soon());
}

TYPED_TEST_P(StreamControl, AWaitEndsAtItsDeadlineAndTheStreamGoesOn) {
  auto stream = TypeParam::make("late");
  Event never, after;
  TypeParam::wait(*stream, never, 1, WaitContext::with_timeout(std::chrono::milliseconds(20)));
  TypeParam::record(*stream, after, 1);
  EXPECT_THROW(TypeParam::synchronize(*stream, this->soon()), DeadlineExceeded);
  EXPECT_TRUE(after.reached(1));
}

TYPED_TEST_P(StreamControl, AStopEndsAWait) {
  auto stream = TypeParam::make("stopped");
  Event never;
  std::stop_source stop;
  TypeParam::wait(*stream, never, 1, WaitContext::with_timeout(std::chrono::seconds(60), stop.get_token()));
  this->nap(2000);
  stop.request_stop();
  EXPECT_THROW(TypeParam::synchronize(*stream, this->soon()), Cancelled);
}

TYPED_TEST_P(StreamControl, TheFirstErrorIsThrownOnceAndNobodyHangs) {
  auto stream = TypeParam::make("broken"), other = TypeParam::make("other");
  Event event;
  bool skipped = true;
  TypeParam::launch(*stream, [] { throw InvalidArgument("first"); });
  TypeParam::launch(*stream, [&] { skipped = false; });
  TypeParam::launch(*stream, [] { throw InvalidArgument("second"); });
  TypeParam::record(*stream, event, 1);
  TypeParam::wait(*other, event, 1, this->soon());
  TypeParam::synchronize(*other, this->soon());
  try {
    TypeParam::synchronize(*stream, this->soon());
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(error.message().find("first"), std::string::npos);
  }
  EXPECT_TRUE(skipped);
  bool ran = false;
  TypeParam::launch(*stream, [&] { ran = true; });
  TypeParam::synchronize(*stream, this->soon());
  EXPECT_TRUE(ran);
}

REGISTER_TYPED_TEST_SUITE_P(StreamControl, StreamsRunSideBySide, AnEventSatisfiesEarlierSteps,
                            SynchronizeEndsAtItsDeadline, AWaitEndsAtItsDeadlineAndTheStreamGoesOn,
                            AStopEndsAWait, TheFirstErrorIsThrownOnceAndNobodyHangs);

}  // namespace braid::testing
