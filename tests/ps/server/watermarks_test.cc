#include "ps/server/watermarks.h"

#include <gtest/gtest.h>

namespace braid::ps {
namespace {

TEST(WatermarksTest, ARetriedPushIsADuplicateWhateverTheOrder) {
  Watermarks marks;
  marks.begin_session(1, 7);
  marks.take(1, 5, 2);
  marks.take(1, 4, 0);
  EXPECT_EQ(marks.look(1, 5, 2), Seen::Duplicate);
  EXPECT_EQ(marks.look(1, 4, 0), Seen::Duplicate);
  EXPECT_EQ(marks.look(1, 4, 2), Seen::New);
  EXPECT_EQ(marks.look(0, 5, 2), Seen::New) << "another worker's";
}

TEST(WatermarksTest, WhatIsOlderThanTheWindowIsStale) {
  Watermarks marks;
  marks.begin_session(0, 7);
  for (std::uint64_t step = 0; step < 200; ++step) marks.take(0, step, 0);
  EXPECT_EQ(marks.look(0, 100, 0), Seen::Stale);
  EXPECT_EQ(marks.look(0, 200 - Watermarks::kWindow, 0), Seen::Duplicate);
  EXPECT_EQ(marks.look(0, 200 - Watermarks::kWindow, 1), Seen::New);
}

TEST(WatermarksTest, ANewProcessStartsAnewAndTheSameOneGoesOn) {
  Watermarks marks;
  marks.begin_session(0, 7);
  marks.take(0, 3, 0);
  marks.begin_session(0, 7);
  EXPECT_EQ(marks.look(0, 3, 0), Seen::Duplicate);
  marks.begin_session(0, 8);
  EXPECT_EQ(marks.look(0, 3, 0), Seen::New);
}

TEST(WatermarksTest, RestoreKeepsTheStateOfSessionsThatGoOn) {
  Watermarks marks;
  marks.begin_session(0, 7);
  marks.begin_session(1, 9);
  marks.take(0, 3, 0);
  marks.take(0, 4, 0);
  marks.take(1, 3, 0);
  const auto saved = marks.save(4);
  Watermarks restarted;
  restarted.begin_session(0, 7);
  restarted.begin_session(1, 10);
  restarted.take(0, 4, 0);
  restarted.restore(saved);
  EXPECT_EQ(restarted.look(0, 3, 0), Seen::Duplicate);
  EXPECT_EQ(restarted.look(0, 4, 0), Seen::New) << "after the snapshot";
  EXPECT_EQ(restarted.look(1, 3, 0), Seen::New) << "another process";
}

}  // namespace
}  // namespace braid::ps
