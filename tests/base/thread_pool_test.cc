#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"

namespace braid {
namespace {

TEST(ThreadPoolTest, RunsEachBlockOnce) {
  for (int width : {1, 2, 3, 8}) {
    ThreadPool pool(width);
    EXPECT_EQ(pool.width(), width);
    for (int blocks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(blocks);
      pool.parallel_for(blocks, [&](std::int64_t b) { ++runs[b]; });
      for (int b = 0; b < blocks; ++b) EXPECT_EQ(runs[b], 1) << "width " << width << ", block " << b;
    }
  }
}

TEST(ThreadPoolTest, EffectsOfBlocksAreVisibleAfterTheCall) {
  ThreadPool pool(4);
  std::vector<int> plain(1000);
  for (int round = 1; round <= 200; ++round) {
    pool.parallel_for(1000, [&](std::int64_t b) { plain[b] += 1; });
    ASSERT_EQ(std::accumulate(plain.begin(), plain.end(), 0), 1000 * round);
  }
}

TEST(ThreadPoolTest, WidthOneStaysOnTheCallersThread) {
  ThreadPool pool(1);
  std::set<std::thread::id> seen;
  pool.parallel_for(50, [&](std::int64_t) { seen.insert(std::this_thread::get_id()); });
  EXPECT_EQ(seen, std::set{std::this_thread::get_id()});
}

TEST(ThreadPoolTest, UsesAllItsThreads) {
  ThreadPool pool(3);
  std::latch all_there(3);  // opens only if three threads are inside blocks at once
  pool.parallel_for(3, [&](std::int64_t) { all_there.arrive_and_wait(); });
}

TEST(ThreadPoolTest, ManyCallersShareThePool) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::vector<std::int64_t> sums(6);
  for (int c = 0; c < 6; ++c) {
    callers.emplace_back([&, c] {
      for (int round = 0; round < 200; ++round) {
        std::atomic<std::int64_t> sum{0};
        pool.parallel_for(1 + (round * 7 + c) % 20, [&](std::int64_t b) { sum += b + 1; });
        const std::int64_t n = 1 + (round * 7 + c) % 20;
        if (sum == n * (n + 1) / 2) ++sums[c];
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (std::int64_t right : sums) EXPECT_EQ(right, 200);
}

TEST(ThreadPoolTest, CallerFinishesWhileAllThreadsAreBusyElsewhere) {
  ThreadPool pool(2);
  std::latch busy(2), release(1);
  std::thread other([&] {
    pool.parallel_for(2, [&](std::int64_t) {
      busy.count_down();
      release.wait();
    });
  });
  busy.wait();
  std::atomic<int> runs{0};
  pool.parallel_for(10, [&](std::int64_t) { ++runs; });
  EXPECT_EQ(runs, 10);
  release.count_down();
  other.join();
}

TEST(ThreadPoolTest, ThrowsTheFirstExceptionAndStaysUsable) {
  for (int width : {1, 4}) {
    ThreadPool pool(width);
    for (int round = 0; round < 50; ++round) {
      std::atomic<int> runs{0};
      try {
        pool.parallel_for(1000, [&](std::int64_t b) {
          ++runs;
          if (b == 3) throw std::runtime_error("block 3");
        });
        FAIL() << "nothing was thrown";
      } catch (const std::runtime_error& e) {
        EXPECT_STREQ(e.what(), "block 3");
      }
      EXPECT_LE(runs, 1000);
    }
    int after = 0;
    pool.parallel_for(1, [&](std::int64_t) { ++after; });
    EXPECT_EQ(after, 1);
  }
}

TEST(ThreadPoolTest, NoBlockStartsAfterAnExceptionOfTheOnlyThread) {
  ThreadPool pool(1);
  int runs = 0;
  EXPECT_THROW(pool.parallel_for(10,
                                 [&](std::int64_t b) {
                                   ++runs;
                                   if (b == 4) throw InvalidArgument("no");
                                 }),
               InvalidArgument);
  EXPECT_EQ(runs, 5);
}

TEST(ThreadPoolTest, RangeBordersDependOnCountAndGrainOnly) {
  using Borders = std::set<std::pair<std::int64_t, std::int64_t>>;
  auto borders = [](int width, std::int64_t count, std::int64_t grain) {
    ThreadPool pool(width);
    std::mutex mutex;
    Borders seen;
    pool.parallel_range(count, grain, [&](std::int64_t begin, std::int64_t end) {
      std::lock_guard lock(mutex);
      seen.emplace(begin, end);
    });
    return seen;
  };
  EXPECT_EQ(borders(1, 10, 4), (Borders{{0, 4}, {4, 8}, {8, 10}}));
  EXPECT_EQ(borders(5, 10, 4), borders(1, 10, 4));
  EXPECT_EQ(borders(3, 8, 4), (Borders{{0, 4}, {4, 8}}));
  EXPECT_EQ(borders(3, 0, 4), Borders{});
  EXPECT_EQ(borders(3, 3, 100), (Borders{{0, 3}}));
}

TEST(ThreadPoolTest, RefusesBadWidthAndGrain) {
  EXPECT_THROW(ThreadPool(100000), InvalidArgument) << "before a thread is started";
  EXPECT_THROW(ThreadPool(0), InvalidArgument);
  ThreadPool pool(1);
  EXPECT_THROW(pool.parallel_range(10, 0, [](std::int64_t, std::int64_t) {}), InvalidArgument);
}

}  // namespace
}  // namespace braid
