#include "worker/watch/device_watch.h"

#include <gmock/gmock.h>

namespace braid::worker {
namespace {

using ::testing::HasSubstr;

TEST(DeviceTableTest, EveryStreamHasARowWithItsShareOfTheWindows) {
  DeviceActivity activity;
  activity.window_seconds = 0.5;
  activity.busy_seconds = 0.25;
  activity.streams = {{"compute0", 0.25, 1200}, {"comm", 0.125, 8}, {"h2d", 0, 0}};
  const std::string table = device_table("cuda:0 NVIDIA X", activity);
  EXPECT_THAT(table, HasSubstr("cuda:0 NVIDIA X, sampled for 0.50 s: busy 50.0%, overlap factor 1.50\n"));
  EXPECT_THAT(table, HasSubstr("compute0        0.2500    50.0%       1200\n"));
  EXPECT_THAT(table, HasSubstr("h2d             0.0000     0.0%          0\n"));
  EXPECT_THAT(table, ::testing::Not(HasSubstr("dropped")));
  activity.dropped = 3;
  EXPECT_THAT(device_table("x", activity), HasSubstr("3 records were lost"));
}

TEST(DeviceTableTest, SaysWhatABatchsCopyTakesAndHowMuchOfItIsHidden) {
  DeviceActivity activity;
  activity.window_seconds = 1;
  activity.busy_seconds = 1;
  EXPECT_THAT(device_table("x", activity), ::testing::Not(HasSubstr("staging")));
  activity.inputs = {100, std::uint64_t{100} << 20, 0.004, 0.003};
  EXPECT_THAT(device_table("x", activity),
              HasSubstr("staging: 1.000 MiB and 40.0 us a copy (26.2 GB/s), 75.0% of that beside kernels\n"));
}

TEST(DeviceTableTest, LaunchesAndBytesOfItsStreamsStandBelowTheHosts) {
  HostActivity activity;
  activity.streams = {{"compute0", "compute", 1.5, {}, 30, 4 << 20, 0}};
  EXPECT_THAT(Monitor::stream_table(activity, 3), ::testing::Not(HasSubstr("of the device")));
  activity.device_streams = {{"compute0", 3000, 5 << 20}, {"h2d", 300, 1 << 20}};
  EXPECT_THAT(Monitor::stream_table(activity, 3),
              ::testing::EndsWith("stream of the device            launches       MiB\n"
                                  "compute0                            3000       5.0\n"
                                  "h2d                                  300       1.0\n"));
}

TEST(DeviceTableTest, WorkOnAStreamOfTheDeviceIsCountedByItsName) {
  Runtime runtime({});
  runtime.device_work("compute0").add(10, 1000);
  runtime.device_work("h2d").add(1, 64);
  runtime.device_work("compute0").add(10, 1000);
  const HostActivity all = runtime.activity();
  ASSERT_EQ(all.device_streams.size(), 2U);
  EXPECT_EQ(all.device_streams[0].name, "compute0");
  EXPECT_EQ(all.device_streams[0].launches, 20U);
  EXPECT_EQ(all.device_streams[0].bytes, 2000U);
  EXPECT_EQ(all.device_streams[1].bytes, 64U);
}

}  // namespace
}  // namespace braid::worker
