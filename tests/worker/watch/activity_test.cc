// What streams did in a part of a run.
#include "worker/watch/activity.h"

#include <gtest/gtest.h>

namespace braid::worker {
namespace {

StreamStats stream(const char* name, double busy, std::uint64_t launches) {
  StreamStats stats;
  stats.name = name;
  stats.busy_seconds = busy;
  stats.launches = launches;
  stats.wait_seconds["idle"] = busy / 2;
  return stats;
}

TEST(ActivityTest, ADifferenceIsOfEachStreamByItsName) {
  HostActivity early, late;
  early.compute_seconds = 1;
  early.streams = {stream("compute0", 1, 10)};
  late.compute_seconds = 4;
  late.streams = {stream("pull", 2, 7), stream("compute0", 3, 30)};
  const HostActivity between = difference(late, early);
  EXPECT_EQ(between.compute_seconds, 3);
  EXPECT_EQ(between.streams[0].busy_seconds, 2) << "a stream that is new";
  EXPECT_EQ(between.streams[1].busy_seconds, 2);
  EXPECT_EQ(between.streams[1].launches, 20U);
  EXPECT_EQ(between.streams[1].wait_seconds.at("idle"), 1);
}

TEST(ActivityTest, PartsAddUp) {
  HostActivity sum, part;
  part.compute_seconds = 1;
  part.streams = {stream("compute0", 1, 10)};
  part.device_streams = {{"h2d", 2, 100}};
  add(sum, part);
  add(sum, part);
  EXPECT_EQ(sum.compute_seconds, 2);
  ASSERT_EQ(sum.streams.size(), 1U);
  EXPECT_EQ(sum.streams[0].busy_seconds, 2);
  ASSERT_EQ(sum.device_streams.size(), 1U);
  EXPECT_EQ(sum.device_streams[0].bytes, 200U);
}

}  // namespace
}  // namespace braid::worker
