// A worker that sleeps inside of a step now and then: what it costs the others under each rule, and that each
// of its late pushes is counted. Real servers and clients; a step's arithmetic is a pause.
#include <gtest/gtest.h>

#include <cstdio>
#include <latch>

#include "ps/server/server_core.h"
#include "tests/ps/cluster.h"
#include "tests/support/in_some_attempt.h"

namespace braid::ps {
namespace {

using std::chrono::milliseconds;
constexpr int kWorkers = 3;
constexpr std::uint64_t kRounds = 60, kEvery = 10;
constexpr milliseconds kStep{40}, kSleep{200};

struct Race {
  double seconds = 0;  // of worker 0
  std::vector<std::uint64_t> steps = std::vector<std::uint64_t>(kWorkers);
  std::uint64_t late = 0, dropped = 0, sleeps = 0;
  std::map<std::uint64_t, std::uint64_t> staleness;
};

Race race(Consistency consistency, bool sleeps) {
  Cluster cluster({.servers = 1, .workers = kWorkers});
  TableSet set;
  set.dense = {{"w", 1000}};
  set.workers = kWorkers;
  set.consistency = consistency;
  set.staleness = 3;
  set.timed = {.timeout_ms = 10, .quorum = 2, .rounds = kRounds};
  Race result;
  std::latch ready(kWorkers);
  cluster.run_workers([&](int worker, PsClient& client) {
    client.create_tables(set, soon());
    std::vector<float> values(1000), gradient(1000, 1.0F);
    if (worker == 0) client.set_dense("w", values, soon());
    client.wait_initialized(soon());
    ready.arrive_and_wait();
    const auto begin = Clock::now();
    std::uint64_t step = 0;
    for (float vote = 0; step < kRounds; ++step) {
      PullRequest pull;
      pull.dense = {{0, values}};
      pull.min_version = step;
      pull.stop_vote = &vote;
      client.pull(pull, soon());
      if (vote > 0) break;
      std::this_thread::sleep_for(kStep);
      if (sleeps && worker == 1 && step % kEvery == kEvery - 1) {
        std::this_thread::sleep_for(kSleep);
        ++result.sleeps;
      }
      PushRequest push;
      push.step = step;
      push.params = {0.1F, 1.0F / kWorkers, step};
      push.dense = {{0, gradient}};
      client.push(push, soon());
    }
    result.steps[static_cast<std::size_t>(worker)] = step;
    if (worker == 0) result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    client.leave(soon());
  });
  const auto counters = cluster.server(0).core().counters();
  for (const auto& [worker, pushes] : counters->late()) {
    EXPECT_EQ(worker, 1) << "nobody else is late";
    result.late += pushes;
  }
  result.dropped = counters->value(Count::PushesDropped);
  result.staleness = counters->staleness();
  return result;
}

TEST(StragglerTest, TimedRoundsKeepTheRateAndDropWhatComesLate) {
  in_some_attempt([] {
    const Race undisturbed = race(Consistency::Bsp, false), timed = race(Consistency::Timed, true),
               waiting = race(Consistency::Bsp, true);
    std::printf(
        "undisturbed %.3f s; a worker that sleeps 200 ms each tenth step: TIMED %.3f s (%.3f of the rate), "
        "BSP "
        "%.3f s (%.3f)\nsleeps %lu, late %lu, dropped %lu; steps of the workers %lu %lu %lu\n",
        undisturbed.seconds, timed.seconds, undisturbed.seconds / timed.seconds, waiting.seconds,
        undisturbed.seconds / waiting.seconds, timed.sleeps, timed.late, timed.dropped, timed.steps[0],
        timed.steps[1], timed.steps[2]);
    EXPECT_GE(undisturbed.seconds / timed.seconds, 0.95);
    EXPECT_LT(undisturbed.seconds / waiting.seconds, 0.8) << "who waits for it is slower";
    EXPECT_GT(timed.sleeps, 2U);
    EXPECT_EQ(timed.late, timed.sleeps);
    EXPECT_EQ(timed.dropped, timed.sleeps);
    EXPECT_EQ(timed.steps[0], kRounds);
    EXPECT_LT(timed.steps[1], kRounds) << "it ends with the others";
  });
}

TEST(StragglerTest, BoundedStalenessHidesIt) {
  in_some_attempt([] {
    const Race undisturbed = race(Consistency::Bsp, false), ssp = race(Consistency::Ssp, true);
    std::printf("undisturbed %.3f s, SSP(3) %.3f s (%.3f of the rate); pulls by staleness:",
                undisturbed.seconds, ssp.seconds, undisturbed.seconds / ssp.seconds);
    for (const auto& [steps, pulls] : ssp.staleness) std::printf(" %lu: %lu", steps, pulls);
    std::printf("\n");
    EXPECT_LE(ssp.staleness.rbegin()->first, 3U);
    EXPECT_EQ(ssp.staleness.rbegin()->first, 3U) << "the bound is reached";
  });
}

}  // namespace
}  // namespace braid::ps
