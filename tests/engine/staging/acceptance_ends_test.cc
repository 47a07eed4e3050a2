// What stages promise (tests/README.md), as far as it is about ends and errors: T5, T6 and T7, with random
// delays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

#include "engine/staging/stage.h"
#include "engine/staging/stage_pools.h"
#include "tests/engine/staging/stage_test_util.h"

namespace braid::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

// ---------------------------------------------------------------------------------------------- T5

TEST(StageAcceptance, T5_CloseDrainsWhatWasBegunThenEndsAHundredTimes) {
  Stage stage({.name = "s", .capacity = 3, .num_threads = 2}, [](std::uint64_t ticket) {
    random_delay(ticket, 100);
    return numbered(ticket);
  });
  for (std::uint64_t i = 0; i < 100; ++i) {
    stage.start(10 * i);
    std::uint64_t next = 10 * i;
    EXPECT_EQ(stage.take(soon()).ticket, next++);
    stage.close();
    EXPECT_THROW(
        for (;;) {
          EXPECT_EQ(stage.take(soon()).ticket, next);
          ++next;
        },
        OutOfRange);
    EXPECT_THROW(stage.take(soon()), OutOfRange);
  }
}

TEST(StageAcceptance, T5_CancelStopsBothSidesPromptlyAHundredTimes) {
  std::atomic<int> working{0}, worked{0};
  StageProducer producer;
  producer.make = [&](const StageCall& call, Batch) {
    ++working;
    // Work that would take long looks at the stop request, as programs do.
    if (call.ticket % 3 == 2) worked += !eventually([&] { return call.stop.stop_requested(); }, 120s);
    --working;
    return numbered(call.ticket);
  };
  Stage stage({.name = "s", .capacity = 1, .num_threads = 3, .num_clients = 2}, producer);
  std::vector<double> took_ms;
  for (int i = 0; i < 100; ++i) {
    stage.start();
    std::atomic<int> cancelled{0};
    std::vector<std::jthread> takers;
    for (int t = 0; t < 3; ++t)
      takers.emplace_back([&] {
        try {
          for (;;) stage.take(soon());
        } catch (const Error& error) {
          cancelled += error.code() == ErrorCode::Cancelled;
        }
      });
    random_delay(static_cast<std::uint64_t>(i), 2000);
    const auto begin = std::chrono::steady_clock::now();
    stage.cancel();
    takers.clear();
    EXPECT_EQ(cancelled, 3) << "and no DeadlineExceeded after a minute";
    ASSERT_TRUE(eventually([&] { return working == 0; }));
    took_ms.push_back(ms_since(begin));
  }
  EXPECT_EQ(worked, 0) << "nobody went on to the end";
  std::nth_element(took_ms.begin(), took_ms.begin() + 50, took_ms.end());
  EXPECT_LT(took_ms[50], 100) << "the median; and nobody looks only now and then";
}

TEST(StageAcceptance, T5_AThousandLivesLeaveNothingBehind) {
  std::atomic<int> alive{0}, threads{0};
  struct Counted {
    std::atomic<int>& n;
    explicit Counted(std::atomic<int>& n) : n(n) { ++n; }
    ~Counted() { --n; }
  };
  {
    StageProducer producer;
    Records records(INT64_MAX);
    producer.read = [&](const StageCall&) { return records.next(); };
    producer.make = [&](const StageCall& call, Batch record) {
      const Counted working(threads);
      random_delay(call.ticket, 40);
      if (call.ticket % 97 == 96) throw DataLoss("torn");
      record.block = std::make_shared<Counted>(alive);
      return record;
    };
    Stage stage({.name = "s", .capacity = 3, .num_threads = 2}, producer);
    std::minstd_rand random(11);
    for (int life = 0; life < 1000; ++life) {
      if (life % 2 == 0)
        stage.start(random() % 200);
      else
        stage.resume();
      std::jthread taker([&stage, takes = random() % 6] {
        try {
          for (std::uint32_t i = 0; i < takes; ++i) stage.take(soon());
        } catch (const Error& e) {
          EXPECT_NE(e.code(), ErrorCode::DeadlineExceeded) << e.message();
        }
      });
      switch (random() % 4) {
        case 0:
          stage.close();
          break;
        case 1:
          stage.cancel();
          break;
        case 2:
          stage.close();
          stage.cancel();
          break;
        default:  // it ends in use
          taker.join();
          stage.cancel();
      }
    }
  }
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(threads, 0);
}

TEST(StageAcceptance, T5_ResumeGoesOnWithTheFirstBatchThatNobodyHasTaken) {
  Stage stage({.name = "s", .capacity = 4, .num_threads = 2}, [](std::uint64_t ticket) {
    random_delay(ticket, 100);
    return numbered(ticket);
  });
  std::uint64_t next = 7;
  stage.start(next);
  for (int i = 0; i < 100; ++i) {
    for (int k = 0; k < i % 4; ++k) EXPECT_EQ(stage.take(soon()).ticket, next++);
    if (i % 2 == 0)
      stage.close();
    else
      stage.cancel();
    stage.resume();
    ASSERT_EQ(stage.take(soon()).ticket, next++);
  }
  EXPECT_THROW(stage.start(), InvalidArgument) << "it runs";
}

TEST(StageAcceptance, T5_ResumeLosesAndDoublesNothingWhereOrderIsOff) {
  const auto produce = [](std::uint64_t ticket) {
    if (ticket >= 200) throw OutOfRange("no more records");
    random_delay(ticket, 300);
    return numbered(ticket);
  };
  Stage stage({.name = "s", .capacity = 4, .num_threads = 3, .ordered = false}, produce);
  std::vector<std::uint64_t> got;
  stage.start();
  for (int life = 0; life < 10; ++life) {
    for (int i = 0; i < 12; ++i) got.push_back(stage.take(soon()).ticket);
    stage.cancel();
    stage.resume();
  }
  EXPECT_THROW(for (;;) got.push_back(stage.take(soon()).ticket), OutOfRange);
  std::sort(got.begin(), got.end());
  std::vector<std::uint64_t> all(200);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(got, all);
}

TEST(StageAcceptance, T5_AStageEndsThoughItsPoolIsBusyForAnother) {
  StageSession session{.pools = std::make_shared<StagePools>(std::vector<StagePoolOptions>{{}})};
  std::promise<void> busy, go;
  std::thread other([&] {
    session.pools->at(0).run([&] {
      busy.set_value();
      go.get_future().wait();
    });
  });
  busy.get_future().wait();
  StageProducer producer;
  std::atomic<bool> begun{false};
  producer.await = [&](const StageCall&) { begun = true; };
  producer.make = [](const StageCall& call, Batch) { return numbered(call.ticket); };
  Stage stage({.name = "s", .use_stage_subgraph_thread_pool = true}, producer, session);
  stage.start();
  EXPECT_TRUE(eventually([&] { return begun.load(); }));
  std::this_thread::sleep_for(20ms);  // until it waits for the pool
  auto ended = std::async(std::launch::async, [&] { stage.stop(); });
  EXPECT_EQ(ended.wait_for(10s), std::future_status::ready);
  go.set_value();
  other.join();
  ended.wait();
  stage.start();
  EXPECT_EQ(stage.take(soon()).ticket, 0U);
}

TEST(StageAcceptance, T5_EndedAndFailedStagesBeginAgain) {
  std::atomic<bool> broken{true};
  Stage stage({.name = "s", .capacity = 2}, [&](std::uint64_t ticket) {
    if (ticket == 3 && broken) throw DataLoss("bad");
    if (ticket == 5) throw OutOfRange("done");
    return numbered(ticket);
  });
  stage.start();
  EXPECT_THROW(for (;;) stage.take(soon()), DataLoss);
  broken = false;
  stage.resume();
  EXPECT_EQ(stage.take(soon()).ticket, 3U) << "the one that failed is made again";
  EXPECT_EQ(stage.take(soon()).ticket, 4U);
  EXPECT_THROW(stage.take(soon()), OutOfRange);
  stage.start();
  EXPECT_EQ(stage.take(soon()).ticket, 0U);
}

// ---------------------------------------------------------------------------------------------- T6

TEST(StageAcceptance, T6_AClosedTypeEndsItsThreadAndTheLastThreadEndsTheSequence) {
  std::atomic<int> ended{0};
  Stage stage(
      {.name = "s", .capacity = 2, .num_threads = 3, .closed_exception_types = {ErrorCode::Unavailable}},
      [&](std::uint64_t ticket) {
        random_delay(ticket, 200);
        if (ticket >= 20) {
          ++ended;
          throw Unavailable("the feeder has gone home");
        }
        return numbered(ticket);
      });
  stage.start();
  for (std::uint64_t t = 0; t < 20; ++t) EXPECT_EQ(stage.take(soon()).ticket, t);
  EXPECT_THROW(stage.take(soon()), OutOfRange);
  EXPECT_EQ(ended, 3);
}

TEST(StageAcceptance, T6_IgnoredTypesAreCountedByKindAndWaitLongerEachTime) {
  std::vector<std::chrono::steady_clock::time_point> attempts;
  Stage stage({.name = "s",
               .capacity = 2,
               .ignored_exception_types = {ErrorCode::DataLoss, ErrorCode::Unavailable},
               .ignored_backoff = 4ms},
              [&](std::uint64_t ticket) {
                attempts.push_back(std::chrono::steady_clock::now());
                if (ticket >= 2 && ticket < 5) throw DataLoss("torn record");
                if (ticket == 7) throw Unavailable("a moment");
                if (ticket == 9) throw OutOfRange("done");
                return numbered(ticket);
              });
  stage.start();
  std::vector<std::uint64_t> seen;
  EXPECT_THROW(for (;;) seen.push_back(stage.take(soon()).ticket), OutOfRange);
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{0, 1, 5, 6, 8}));
  const StageStats stats = stage.stats();
  EXPECT_EQ(stats.ignored.at(ErrorCode::DataLoss), 3U);
  EXPECT_EQ(stats.ignored.at(ErrorCode::Unavailable), 1U);
  EXPECT_EQ(stats.threads.at(0).errors, 5U) << "the end is one too";
  ASSERT_EQ(attempts.size(), 10U);
  EXPECT_GE(attempts[3] - attempts[2], 4ms);
  EXPECT_GE(attempts[4] - attempts[3], 8ms);
  EXPECT_GE(attempts[5] - attempts[4], 16ms);
  EXPECT_GE(attempts[8] - attempts[7], 4ms) << "a success begins anew";
}

TEST(StageAcceptance, T6_TooManyIgnoredErrorsInARowAreAnErrorWithTheLastText) {
  Stage stage(
      {.name = "s",
       .ignored_exception_types = {ErrorCode::DataLoss},
       .max_ignored_in_a_row = 4,
       .ignored_backoff = 0ms},
      [](std::uint64_t ticket) -> Batch { throw DataLoss("record " + std::to_string(ticket) + " is torn"); });
  stage.start();
  EXPECT_THAT(message_of<DataLoss>([&] { stage.take(soon()); }),
              AllOf(HasSubstr("5 errors in a row"), HasSubstr("record 4 is torn")));
}

TEST(StageAcceptance, T6_AnUnknownErrorReachesEveryTakerWithItsOwnText) {
  for (const bool ordered : {true, false}) {
    Stage stage({.name = "s", .capacity = 2, .num_threads = 3, .num_clients = 3, .ordered = ordered},
                [](std::uint64_t ticket) {
                  random_delay(ticket, 200);
                  if (ticket == 40) throw InvalidArgument("[Gather] node 'g': index 9 is not in [0, 4)");
                  return numbered(ticket);
                });
    stage.start();
    std::atomic<int> right{0}, taken{0};
    {
      std::vector<std::jthread> takers;
      for (int t = 0; t < 3; ++t)
        takers.emplace_back([&] {
          const std::string text = message_of<InvalidArgument>([&] {
            for (;;) {
              stage.take(soon());
              ++taken;
            }
          });
          right += text == "[Gather] node 'g': index 9 is not in [0, 4)";
        });
    }
    EXPECT_EQ(right, 3);
    if (ordered) {
      EXPECT_EQ(taken, 40) << "all that is before the error";
    }
  }
}

TEST(StageAcceptance, T6_AnErrorOfTheSourceIsTreatedLikeOneOfTheWork) {
  Records records(10);
  std::atomic<int> reads{0};
  StageProducer producer;
  producer.read = [&](const StageCall& call) {
    ++reads;
    auto record = records.next();
    if (call.ticket == 4) throw DataLoss("line 5: unreadable");
    return record;
  };
  producer.make = [](const StageCall&, Batch record) { return record; };
  Stage stage({.name = "s", .num_threads = 2, .ignored_exception_types = {ErrorCode::DataLoss}}, producer);
  stage.start();
  std::vector<std::int64_t> seen;
  EXPECT_THROW(for (;;) seen.push_back(value_of(stage.take(soon()))), OutOfRange);
  EXPECT_EQ(seen, (std::vector<std::int64_t>{0, 1, 2, 3, 5, 6, 7, 8, 9}));
  EXPECT_EQ(reads, 11) << "a source that has ended is not asked again";
}

// ---------------------------------------------------------------------------------------------- T7

TEST(StageAcceptance, T7_TakingFromAStageThatWasNeverStartedIsAnErrorAtOnce) {
  Stage stage({.name = "input"}, numbered);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(message_of<InvalidArgument>([&] { stage.take(soon()); }), HasSubstr("'input' was not started"));
  EXPECT_LT(ms_since(begin), 30'000) << "the take's own deadline is a minute away";
}

}  // namespace
}  // namespace braid::testing
