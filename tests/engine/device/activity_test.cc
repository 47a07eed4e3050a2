// The arithmetic of windows; cuda_activity_test.cu measures a real device.
#include "engine/device/activity.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(ActivityTest, OverlappingWorkIsCountedOnce) {
  EXPECT_EQ(covered_ns({}, 0, 100), 0U);
  EXPECT_EQ(covered_ns({{10, 20}, {30, 50}}, 0, 100), 30U);
  EXPECT_EQ(covered_ns({{30, 50}, {10, 40}, {35, 36}}, 0, 100), 40U);
  EXPECT_EQ(covered_ns({{10, 20}, {10, 20}}, 0, 100), 10U);
}

TEST(ActivityTest, WorkOutsideOfTheWindowIsCutOff) {
  EXPECT_EQ(covered_ns({{0, 30}, {90, UINT64_MAX}}, 20, 100), 20U);
  EXPECT_EQ(covered_ns({{0, 10}, {200, 300}}, 20, 100), 0U);
  EXPECT_EQ(covered_ns({{0, 1000}}, 20, 100), 80U);
}

TEST(ActivityTest, WhatTwoKindsOfWorkCoverBoth) {
  EXPECT_EQ(covered_by_both_ns({}, {{0, 100}}, 0, 100), 0U);
  EXPECT_EQ(covered_by_both_ns({{10, 20}, {30, 50}}, {{0, 15}, {40, 45}, {42, 60}}, 0, 100), 15U);
  EXPECT_EQ(covered_by_both_ns({{10, 20}, {12, 30}}, {{15, 25}, {15, 18}}, 0, 100), 10U) << "once";
  EXPECT_EQ(covered_by_both_ns({{10, 50}}, {{0, UINT64_MAX}}, 20, 40), 20U);
}

TEST(ActivityTest, CopiesAddUp) {
  DeviceActivity total, window;
  window.inputs = {3, 300, 0.5, 0.25};
  total.add(window);
  total.add(window);
  EXPECT_EQ(total.inputs.copies, 6U);
  EXPECT_EQ(total.inputs.bytes, 600U);
  EXPECT_EQ(total.inputs.seconds, 1);
  EXPECT_EQ(total.inputs.hidden_seconds, 0.5);
}

TEST(ActivityTest, WindowsAddUpByStream) {
  DeviceActivity total;
  DeviceActivity window;
  window.window_seconds = 1;
  window.busy_seconds = 0.5;
  window.streams = {{"compute0", 0.5, 10}, {"comm", 0.25, 1}};
  window.slices.push_back({0, "a", {}, {}});
  total.add(window);
  window.streams.push_back({"h2d", 0, 0});
  total.add(window);
  EXPECT_EQ(total.window_seconds, 2);
  ASSERT_EQ(total.streams.size(), 3U);
  EXPECT_EQ(total.streams[0].busy_seconds, 1);
  EXPECT_EQ(total.streams[1].pieces, 2U);
  EXPECT_EQ(total.streams[2].stream, "h2d");
  EXPECT_EQ(total.overlap_factor(), 1.5);
  EXPECT_TRUE(total.slices.empty());
  EXPECT_EQ(DeviceActivity{}.overlap_factor(), 0);
}

}  // namespace
}  // namespace braid
