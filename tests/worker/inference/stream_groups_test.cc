// Groups and launch threads of requests: who gets what, and that everything is given back.
#include "worker/inference/stream_groups.h"

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <random>

#include "base/error.h"
#include "tests/support/eventually.h"
#include "tests/support/message_of.h"
#include "worker/inference/launch_pool.h"

namespace braid::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

WaitContext within(milliseconds time = seconds(60)) { return WaitContext::with_timeout(time); }

TEST(StreamGroupsTest, TheFreeGroupThatHasWorkedLeastIsTaken) {
  StreamGroups groups(2, 8);
  {
    const auto first = groups.acquire(within());
    EXPECT_EQ(first.group(), 0);
    const auto second = groups.acquire(within());
    EXPECT_EQ(second.group(), 1);
    std::this_thread::sleep_for(milliseconds(2));
  }
  { const auto some = groups.acquire(within()); }
  const auto stats = groups.stats();
  const int less = stats[0].busy_seconds < stats[1].busy_seconds ? 0 : 1;
  EXPECT_EQ(groups.acquire(within()).group(), less);
}

TEST(StreamGroupsTest, WhoWaitsFirstIsServedFirst) {
  StreamGroups groups(1, 8);
  auto held = std::make_unique<StreamGroups::Lease>(groups.acquire(within()));
  std::vector<int> order;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const auto lease = groups.acquire(within());
      order.push_back(i);  // guarded by the one group
    });
    ASSERT_TRUE(eventually([&] { return groups.waiting() == static_cast<std::size_t>(i) + 1; }));
  }
  held.reset();
  threads.clear();
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3));
}

TEST(StreamGroupsTest, AFullLineRefusesAndALateRequestLeavesIt) {
  StreamGroups groups(1, 1);
  const auto held = groups.acquire(within());
  EXPECT_THAT(message_of<DeadlineExceeded>([&] { groups.acquire(within(milliseconds(20))); }),
              HasSubstr("waiting for one of 1 stream groups: deadline exceeded"));
  EXPECT_EQ(groups.waiting(), 0U);
  std::stop_source stop;
  const auto until_stopped = WaitContext::with_timeout(seconds(60), stop.get_token());
  auto waiting = std::async(std::launch::async,
                            [&] { return message_of<Cancelled>([&] { groups.acquire(until_stopped); }); });
  EXPECT_TRUE(eventually([&] { return groups.waiting() == 1; }));
  EXPECT_THAT(message_of<Unavailable>([&] { groups.acquire(within()); }),
              HasSubstr("all 1 stream groups work and 1 requests wait"));
  stop.request_stop();
  EXPECT_THAT(waiting.get(), HasSubstr("waiting for one of 1 stream groups: cancelled"));
  EXPECT_EQ(groups.waiting(), 0U);
  EXPECT_THROW(groups.acquire(until_stopped), Cancelled);
}

TEST(StreamGroupsTest, EveryGroupComesBackWhateverBecomesOfItsRequests) {
  constexpr int kGroups = 3, kThreads = 8, kEach = 300;
  StreamGroups groups(kGroups, 4);
  std::vector<std::atomic<int>> users(kGroups);
  std::atomic<int> done{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        std::mt19937 random(static_cast<unsigned>(t));
        for (int i = 0; i < kEach; ++i) {
          try {
            const auto lease = groups.acquire(within(milliseconds(random() % 3)));
            auto& mine = users[static_cast<std::size_t>(lease.group())];
            EXPECT_EQ(++mine, 1) << "two requests have one group";
            if (random() % 4 == 0) std::this_thread::sleep_for(milliseconds(1));
            --mine;
            if (random() % 3 == 0) throw Internal("a request fails");
          } catch (const Error&) {
          }
          ++done;
        }
      });
  }
  EXPECT_EQ(done, kThreads * kEach);
  std::vector<StreamGroups::Lease> all;
  for (int i = 0; i < kGroups; ++i) all.push_back(groups.acquire(within()));
  EXPECT_EQ(all.size(), static_cast<std::size_t>(kGroups));
}

TEST(LaunchPoolTest, WorkRunsOnItsThreadsAndErrorsComeBack) {
  LaunchPool pool(1);
  std::thread::id on, again;
  pool.run([&] { on = std::this_thread::get_id(); }, within());
  pool.run([&] { again = std::this_thread::get_id(); }, within());
  EXPECT_NE(on, std::this_thread::get_id());
  EXPECT_EQ(on, again);
  const auto fail = [] { throw InvalidArgument("no"); };
  EXPECT_EQ(message_of([&] { pool.run(fail, within()); }), "no");
  EXPECT_EQ(pool.runs(), 3U);
}

TEST(LaunchPoolTest, ItsThreadsHaveItsName) {
  LaunchPool pool(2, "a name of more than fifteen characters");
  char name[16] = {};
  pool.run([&] { pthread_getname_np(pthread_self(), name, sizeof name); }, within());
  EXPECT_STREQ(name, "a name of more ");
}

TEST(LaunchPoolTest, WorkThatHasNotBegunIsWithdrawn) {
  LaunchPool pool(1);
  std::promise<void> begun, go;
  auto busy = std::async(std::launch::async, [&] {
    pool.run(
        [&] {
          begun.set_value();
          go.get_future().wait();
        },
        within());
  });
  begun.get_future().wait();
  bool ran = false;
  EXPECT_THAT(message_of<DeadlineExceeded>([&] { pool.run([&] { ran = true; }, within(milliseconds(10))); }),
              HasSubstr("waiting for a launch thread"));
  go.set_value();
  busy.get();
  pool.run([] {}, within());
  EXPECT_FALSE(ran);
}

TEST(LaunchPoolTest, WorkThatHasBegunIsWaitedFor) {
  LaunchPool pool(1);
  std::stop_source stop;
  bool ended = false;
  pool.run(
      [&] {
        stop.request_stop();  // whoever waits is late from here on
        std::this_thread::sleep_for(milliseconds(50));
        ended = true;
      },
      WaitContext::with_timeout(seconds(60), stop.get_token()));
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace braid::worker
