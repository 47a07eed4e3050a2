// Threads that wake on one core part; their affinity stays.
#include "engine/device/core_place.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <future>
#include <thread>

#include "tests/support/in_some_attempt.h"

namespace braid {
namespace {

class CorePlaceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(sched_getaffinity(0, sizeof(allowed_), &allowed_), 0);
    if (CPU_COUNT(&allowed_) < 2)
      GTEST_SKIP() << "this process may use one core only: give it two (taskset, docker --cpuset-cpus)";
  }
  void TearDown() override { sched_setaffinity(0, sizeof(allowed_), &allowed_); }

  void stay_on(int core) const {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    ASSERT_EQ(sched_getcpu(), core);
  }
  int first_core() const {
    int core = 0;
    while (!CPU_ISSET(core, &allowed_)) ++core;
    return core;
  }

  cpu_set_t allowed_;
};

// The system may move a thread whenever it likes where it is allowed to, also between a look and what is
// done.
TEST_F(CorePlaceTest, WhoWakesWhereAnotherWorksMovesAndMayGoAnywhereAfterwards) {
  const int core = first_core();
  stay_on(core);
  in_some_attempt([&] {
    CorePlace::take();
    int woke_on = -1, moved_to = -1;
    cpu_set_t after;
    std::thread([&] {  // inherits the mask
      sched_setaffinity(0, sizeof(allowed_), &allowed_);
      woke_on = sched_getcpu();
      CorePlace::take();
      moved_to = sched_getcpu();
      sched_getaffinity(0, sizeof(after), &after);
      CorePlace::leave();
    })
        .join();
    CorePlace::leave();
    EXPECT_EQ(woke_on, core);
    EXPECT_NE(moved_to, core);
    EXPECT_TRUE(CPU_EQUAL(&after, &allowed_));
  });
}

TEST_F(CorePlaceTest, NobodyLeavesACoreThatIsItsOnlyOne) {
  const int core = first_core();
  stay_on(core);
  CorePlace::take();
  std::thread([&] {  // inherits the mask
    CorePlace::take();
    EXPECT_EQ(sched_getcpu(), core);
    cpu_set_t after;
    sched_getaffinity(0, sizeof(after), &after);
    EXPECT_EQ(CPU_COUNT(&after), 1);
    CorePlace::leave();
  })
      .join();
  CorePlace::leave();
}

}  // namespace
}  // namespace braid
