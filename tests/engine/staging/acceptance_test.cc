// What stages promise (tests/README.md), as far as it is about a stage at work: T2, T3, T4, T9 (pools) and
// T11, with random delays of producers and takers. Ends and errors are in acceptance_ends_test.cc, structures
// in nested_test.cc, graphs in graph_stage_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "engine/staging/stage.h"
#include "engine/staging/stage_pools.h"
#include "tests/engine/staging/stage_test_util.h"
#include "tests/support/in_some_attempt.h"

namespace braid::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// ---------------------------------------------------------------------------------------------- T2

TEST(StageAcceptance, T2_CapacityIsNeverExceededAndBackPressureBlocksTheProducer) {
  for (const bool ordered : {true, false})
    for (const int capacity : {1, 2, 5})
      for (const int threads : {1, 3}) {
        std::atomic<std::uint64_t> made{0};
        StageOptions options{.name = "s", .capacity = capacity, .num_threads = threads, .ordered = ordered};
        Stage stage(options, [&](std::uint64_t ticket) {
          random_delay(ticket, 200);
          ++made;
          return numbered(ticket);
        });
        stage.start();
        const auto most = static_cast<std::uint64_t>(capacity + threads);
        ASSERT_TRUE(eventually([&] { return made == most; })) << "each thread holds one more";
        EXPECT_TRUE(eventually([&] { return stage.stats().ready == capacity; }));
        std::this_thread::sleep_for(10ms);
        EXPECT_EQ(made, most) << "nothing more is made while nobody takes";
        EXPECT_EQ(stage.stats().ready, capacity);
        for (std::uint64_t t = 0; t < 100; ++t) {
          random_delay(t + 1000, 100);
          stage.take(soon());
          EXPECT_LE(made, t + 1 + most);
        }
        EXPECT_LE(stage.stats().most_ready, capacity);
      }
}

TEST(StageAcceptance, T2_TimeoutIsAnErrorByDefaultWithoutALoss) {
  Stage stage({.name = "s", .capacity = 2, .timeout_millis = 30ms}, numbered);
  stage.start();
  ASSERT_TRUE(eventually([&] { return stage.stats().threads.at(0).errors == 1; }));
  EXPECT_EQ(stage.take(soon()).ticket, 0U);
  EXPECT_EQ(stage.take(soon()).ticket, 1U);
  EXPECT_THAT(
      message_of<DeadlineExceeded>([&] { stage.take(soon()); }),
      AllOf(HasSubstr("stage 's'"), HasSubstr("batch 2 found no room for 30 ms"), HasSubstr("capacity 2")));
  EXPECT_EQ(stage.stats().dropped, 0U);
}

TEST(StageAcceptance, T2_TimeoutDropsAndCountsWhereAsked) {
  for (const bool ordered : {true, false}) {
    Stage stage({.name = "s", .timeout_millis = 10ms, .on_timeout = TimeoutPolicy::Drop, .ordered = ordered},
                numbered);
    stage.start();
    ASSERT_TRUE(eventually([&] { return stage.stats().dropped >= 3; }));
    const std::uint64_t dropped = stage.stats().dropped;
    EXPECT_EQ(stage.take(soon()).ticket, 0U) << "what is in the buffer stays";
    std::uint64_t next = 0;
    EXPECT_TRUE(eventually([&] {
      try {
        next = stage.take(soon()).ticket;
        return true;
      } catch (const DeadlineExceeded&) {  // the time of the options is that of a take, too
        return false;
      }
    }));
    EXPECT_GE(next, dropped + 1) << "what was dropped is gone, the rest goes on";
  }
}

TEST(StageAcceptance, T2_TimeoutKeepsWaitingWhereAsked) {
  Stage stage({.name = "s", .timeout_millis = 10ms, .on_timeout = TimeoutPolicy::Wait},
              [](std::uint64_t ticket) {
                if (ticket == 5) std::this_thread::sleep_for(100ms);
                return numbered(ticket);
              });
  stage.start();
  std::this_thread::sleep_for(60ms);
  for (std::uint64_t t = 0; t < 10; ++t) EXPECT_EQ(stage.take(soon()).ticket, t);
  EXPECT_EQ(stage.stats().dropped, 0U);
}

TEST(StageAcceptance, T2_NothingTimesOutWhileTheTakerSaysThatItPauses) {
  Stage stage({.name = "s", .timeout_millis = 20ms}, numbered);
  std::optional<Stage::Pause> pause(std::in_place, stage);
  stage.start();
  ASSERT_TRUE(eventually([&] { return stage.stats().ready == 1; }));
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(stage.stats().threads.at(0).errors, 0U);
  for (std::uint64_t t = 0; t < 5; ++t) {
    EXPECT_TRUE(eventually([&] { return stage.stats().ready == 1; }));
    EXPECT_EQ(stage.take(soon()).ticket, t);
  }
  pause.reset();
  ASSERT_TRUE(eventually([&] { return stage.stats().threads.at(0).errors == 1; }))
      << "and after that it does";
  EXPECT_THROW(for (int i = 0; i < 4; ++i) stage.take(soon()), DeadlineExceeded);
}

TEST(StageAcceptance, T2_AfterAPauseTheTimeBeginsAnew) {
  in_some_attempt([] {
    Stage stage({.name = "s", .timeout_millis = 150ms}, numbered);
    std::optional<Stage::Pause> pause(std::in_place, stage);
    stage.start();
    std::this_thread::sleep_for(400ms);
    pause.reset();
    std::this_thread::sleep_for(30ms);  // in which the producer looks at the time
    for (std::uint64_t t = 0; t < 5; ++t) EXPECT_EQ(stage.take(soon()).ticket, t);
  });
}

// ---------------------------------------------------------------------------------------------- T3

TEST(StageAcceptance, T3_OrderedKeepsTheOrderOfTheInputWithManyThreads) {
  for (const int threads : {1, 2, 4, 8}) {
    Records records(300);
    StageProducer producer;
    producer.read = [&](const StageCall&) { return records.next(); };
    producer.make = [](const StageCall& call, Batch record) {
      random_delay(call.ticket, 300);
      return record;
    };
    Stage stage({.name = "s", .capacity = 3, .num_threads = threads}, producer);
    stage.start();
    for (std::int64_t i = 0; i < 300; ++i) ASSERT_EQ(value_of(stage.take(soon())), i);
    EXPECT_THROW(stage.take(soon()), OutOfRange);
  }
}

TEST(StageAcceptance, T3_UnorderedLosesAndDoublesNothing) {
  std::multiset<std::int64_t> expected;
  for (std::int64_t i = 0; i < 500; ++i) expected.insert(i);
  bool reordered = false;
  for (int repeat = 0; repeat < 5 || (!reordered && repeat < 100); ++repeat) {
    Records records(500);
    std::mutex mu;
    // The source is inside the work, as in a subgraph with a reader: order is that of completion.
    Stage stage({.name = "s", .capacity = 4, .num_threads = 4, .ordered = false}, [&](std::uint64_t ticket) {
      Batch record;
      {
        std::lock_guard lock(mu);
        record = records.next();
      }
      random_delay(ticket + 77, 200);
      return record;
    });
    stage.start();
    std::multiset<std::int64_t> seen;
    std::int64_t last = -1;
    try {
      for (;;) {
        const std::int64_t value = value_of(stage.take(soon()));
        reordered |= value < last;
        last = value;
        seen.insert(value);
      }
    } catch (const OutOfRange&) {
    }
    ASSERT_EQ(seen, expected);
  }
  EXPECT_TRUE(reordered) << "the test has not had four threads at work";
}

TEST(StageAcceptance, T3_ASlowBatchDoesNotHoldBackOthersWhereOrderIsOff) {
  std::atomic<bool> release{false};
  Stage stage({.name = "s", .capacity = 2, .num_threads = 2, .ordered = false}, [&](std::uint64_t ticket) {
    while (ticket == 0 && !release) std::this_thread::sleep_for(1ms);
    return numbered(ticket);
  });
  stage.start();
  for (int i = 0; i < 50; ++i) EXPECT_NE(stage.take(soon()).ticket, 0U);
  release = true;
}

TEST(StageAcceptance, T3_JoinedProducersTakeTurnsAndTheShorterOneIsLeftOut) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<StageProducer> producers;
    for (const std::int64_t count : {3, 6, 1}) {
      StageProducer producer;
      producer.read = [records = std::make_shared<Records>(count)](const StageCall&) {
        return records->next();
      };
      producer.make = [](const StageCall& call, Batch record) {
        random_delay(call.ticket, 500);
        record.tensors[0].data<std::int64_t>()[0] += 100 * call.thread;
        return record;
      };
      producers.push_back(std::move(producer));
    }
    Stage stage({.name = "joined"}, producers);
    stage.start();
    std::vector<std::int64_t> seen;
    EXPECT_THROW(for (;;) seen.push_back(value_of(stage.take(soon()))), OutOfRange);
    ASSERT_EQ(seen, (std::vector<std::int64_t>{0, 100, 200, 1, 101, 2, 102, 103, 104, 105}));
  }
}

TEST(StageAcceptance, T3_JoinedProducersThatRunFreelyLoseNothing) {
  std::vector<StageProducer> producers;
  for (int p = 0; p < 3; ++p) {
    StageProducer producer;
    producer.make = [p, n = std::make_shared<int>(0)](const StageCall&, Batch) {
      if (*n == 50) throw OutOfRange("done");
      return batch_of(Tensor::scalar<std::int64_t>(1000 * p + (*n)++));
    };
    producers.push_back(std::move(producer));
  }
  Stage stage({.name = "joined", .num_threads = 3, .ordered = false}, producers);
  stage.start();
  std::set<std::int64_t> seen;
  EXPECT_THROW(for (;;) seen.insert(value_of(stage.take(soon()))), OutOfRange);
  EXPECT_EQ(seen.size(), 150U);
  EXPECT_THAT(message_of<InvalidArgument>([&] { Stage({.name = "joined", .num_threads = 2}, producers); }),
              HasSubstr("3 producers have a thread each, but num_threads is 2"));
}

// ---------------------------------------------------------------------------------------------- T4

TEST(StageAcceptance, T4_EveryClientGetsItsOwnRecordsAndAllGetTheEnd) {
  for (const int clients : {1, 4}) {  // four takers in both cases
    Stage stage({.name = "s", .capacity = 3, .num_threads = 2, .num_clients = clients},
                [](std::uint64_t ticket) {
                  if (ticket >= 400) throw OutOfRange("done");
                  random_delay(ticket, 50);
                  return numbered(ticket);
                });
    stage.start();
    std::mutex mu;
    std::multiset<std::uint64_t> seen;
    std::atomic<int> ends{0};
    {
      std::vector<std::jthread> takers;
      for (int t = 0; t < 4; ++t)
        takers.emplace_back([&] {
          try {
            for (;;) {
              const std::uint64_t ticket = stage.take(soon()).ticket;
              std::lock_guard lock(mu);
              seen.insert(ticket);
            }
          } catch (const OutOfRange&) {
            ++ends;
          }
        });
    }
    EXPECT_EQ(ends, 4);
    ASSERT_EQ(seen.size(), 400U);
    EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 400U);
  }
}

TEST(StageAcceptance, T4_ATakerBeyondNumClientsWaitsForItsTurn) {
  std::atomic<bool> release{false};
  Stage stage({.name = "s", .num_clients = 1}, [&](std::uint64_t ticket) {
    while (!release) std::this_thread::sleep_for(1ms);
    return numbered(ticket);
  });
  stage.start();
  std::jthread first([&] { stage.take(soon()); });
  EXPECT_TRUE(eventually([&] { return stage.stats().late_takes == 1; }));
  EXPECT_THAT(message_of<DeadlineExceeded>([&] { stage.take(soon(20ms)); }), HasSubstr("num_clients=1"));
  EXPECT_EQ(stage.stats().late_takes, 1U);
  release = true;
}

// ---------------------------------------------------------------------------------------------- T9

TEST(StageAcceptance, T9_ThreadPoolIdsAreChecked) {
  StageSession none;
  StageOptions options{.name = "s", .use_stage_subgraph_thread_pool = true};
  EXPECT_THAT(message_of<InvalidArgument>([&] { check_stage_options(options, none); }),
              AllOf(HasSubstr("stage 's'"), HasSubstr("no session_stage_subgraph_thread_pool is declared")));
  StageSession two{.pools = std::make_shared<StagePools>(std::vector<StagePoolOptions>(2))};
  for (const int id : {-1, 2}) {
    options.stage_subgraph_thread_pool_id = id;
    EXPECT_THAT(message_of<InvalidArgument>([&] { check_stage_options(options, two); }),
                HasSubstr("stage_subgraph_thread_pool_id must be in [0, 1], got " + std::to_string(id)));
  }
  options.stage_subgraph_thread_pool_id = 1;
  EXPECT_NO_THROW(check_stage_options(options, two));
  options.use_stage_subgraph_thread_pool = false;
  EXPECT_THAT(message_of<InvalidArgument>([&] { check_stage_options(options, two); }),
              HasSubstr("use_stage_subgraph_thread_pool is not set"));
}

TEST(StageAcceptance, T9_StreamIdsAreChecked) {
  StageOptions options{.name = "s", .stage_subgraph_stream_id = 1};
  EXPECT_THAT(message_of<InvalidArgument>([&] { check_stage_options(options, {.streams = 2}); }),
              HasSubstr("stage_multi_stream is not set"));
  const StageSession two{.streams = 2, .stage_multi_stream = true};
  EXPECT_NO_THROW(check_stage_options(options, two));
  options.stage_subgraph_stream_id = 2;
  EXPECT_THAT(message_of<InvalidArgument>([&] { check_stage_options(options, two); }),
              HasSubstr("stage_subgraph_stream_id must be in [0, 1], got 2"));
  options.stage_subgraph_stream_id = -1;
  EXPECT_THROW(check_stage_options(options, two), InvalidArgument);
}

TEST(StageAcceptance, T9_AStageWithAPoolWorksOnThePoolsThreadsOnly) {
  const auto pools = std::make_shared<StagePools>(std::vector<StagePoolOptions>{
      {.global_name = "other"}, {.inter_op_threads_num = 2, .global_name = "mine"}});
  std::mutex mu;
  std::set<std::thread::id> threads;
  std::set<std::string> names;
  std::atomic<int> at_work{0}, most{0};
  StageProducer producer;
  const auto work = [&] {
    const int now = ++at_work;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
    }
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof name);
    {
      std::lock_guard lock(mu);
      threads.insert(std::this_thread::get_id());
      names.insert(name);
    }
    std::this_thread::sleep_for(2ms);
    --at_work;
  };
  producer.read = [&](const StageCall&) {
    work();
    return Batch();
  };
  producer.make = [&](const StageCall& call, Batch) {
    work();
    return numbered(call.ticket);
  };
  Stage stage({.name = "s",
               .capacity = 2,
               .num_threads = 4,
               .use_stage_subgraph_thread_pool = true,
               .stage_subgraph_thread_pool_id = 1},
              producer, {.pools = pools});
  stage.start();
  for (std::uint64_t t = 0; t < 50; ++t) EXPECT_EQ(stage.take(soon()).ticket, t);
  stage.cancel();
  ASSERT_TRUE(eventually([&] { return at_work == 0; }));
  std::lock_guard lock(mu);
  EXPECT_EQ(names, std::set<std::string>{"mine"});
  EXPECT_LE(threads.size(), 2U);
  EXPECT_LE(most, 2) << "four stage threads, two of the pool";
  EXPECT_GE(pools->at(1).busy_seconds(), 0.2);
  EXPECT_EQ(pools->at(0).busy_seconds(), 0);
}

// --------------------------------------------------------------------------------------------- T11

TEST(StageAcceptance, T11_CountsOccupancyAndWaits) {
  in_some_attempt([] {
    Stage fast({.name = "fast", .capacity = 4}, numbered);
    fast.start();
    ASSERT_TRUE(eventually([&] { return fast.stats().ready == 4; }));
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(2ms);
      fast.take(soon());
    }
    const StageStats full = fast.stats();
    EXPECT_GT(full.occupancy, 2.0) << "a fast producer fills the buffer";
    EXPECT_LT(full.late_takes, 5U);
    EXPECT_GT(full.threads.at(0).wait_seconds, 0.02);
    EXPECT_EQ(full.capacity, 4);
  });
  in_some_attempt([] {
    Stage slow({.name = "slow", .capacity = 4}, [](std::uint64_t ticket) {
      std::this_thread::sleep_for(2ms);
      return numbered(ticket);
    });
    slow.start();
    for (int i = 0; i < 20; ++i) slow.take(soon());
    const StageStats empty = slow.stats();
    EXPECT_LT(empty.occupancy, 1.0) << "a slow one keeps it empty";
    EXPECT_GT(empty.late_takes, 15U);
    EXPECT_GT(empty.take_wait_seconds, 0.03);
    EXPECT_GE(empty.threads.at(0).busy_seconds, 0.04);
    EXPECT_EQ(empty.taken, 20U);
  });
}

TEST(StageAcceptance, T11_AutoFindsTheThreadsThatInputNeedsWithin50Batches) {
  // Making a batch takes longer than a step; both sleep, so cores do not matter.
  in_some_attempt([] {
    Stage stage({.name = "auto", .capacity = StageOptions::kAuto, .num_threads = StageOptions::kAuto},
                [](std::uint64_t ticket) {
                  std::this_thread::sleep_for(6ms);
                  return numbered(ticket);
                });
    stage.start();
    for (std::uint64_t t = 0; t < 51; ++t) {
      EXPECT_EQ(stage.take(soon()).ticket, t);
      if (t < 50) std::this_thread::sleep_for(4ms);
    }
    const StageStats stats = stage.stats();
    EXPECT_GE(stats.num_threads, 2);
    EXPECT_GE(stats.capacity, stats.num_threads);
    EXPECT_THAT(stage.tuning_report(), AllOf(HasSubstr("threads"), HasSubstr("making a batch takes")));
  });
}

TEST(StageAcceptance, T11_AutoCountsTheWaitsOfSeveralTakersOnce) {
  // Four takers ask for a batch every 6 ms together: two threads make them, though eight may.
  in_some_attempt([] {
    StageProducer producer;
    producer.make = [](const StageCall& call, Batch) {
      std::this_thread::sleep_for(10ms);
      return numbered(call.ticket);
    };
    const StageSession session{
        .pools = std::make_shared<StagePools>(std::vector<StagePoolOptions>{{.inter_op_threads_num = 8}})};
    Stage stage({.name = "auto",
                 .capacity = 4,
                 .num_threads = StageOptions::kAuto,
                 .num_clients = 4,
                 .use_stage_subgraph_thread_pool = true},
                producer, session);
    stage.start();
    {
      std::vector<std::jthread> takers;
      for (int t = 0; t < 4; ++t)
        takers.emplace_back([&] {
          for (int i = 0; i < 15; ++i) {
            stage.take(soon());
            std::this_thread::sleep_for(24ms);
          }
        });
    }
    EXPECT_THAT(stage.tuning_report(), HasSubstr("a step "));
    EXPECT_THAT(stage.tuning_report(), Not(HasSubstr("a step -")));
    EXPECT_GE(stage.stats().num_threads, 2);
    EXPECT_LE(stage.stats().num_threads, 6) << "and not all that there may be";
  });
}

}  // namespace
}  // namespace braid::testing
