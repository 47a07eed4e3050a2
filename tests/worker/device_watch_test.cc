#include "worker/device_watch.h"

#include <gmock/gmock.h>

namespace braid::worker {
namespace {

using testing::HasSubstr;

TEST(DeviceTableTest, EveryStreamHasARowWithItsShareOfTheWindows) {
  DeviceActivity activity;
  activity.window_seconds = 0.5;
  activity.busy_seconds = 0.25;
  activity.streams = {{"compute0", 0.25, 1200}, {"comm", 0.125, 8}, {"h2d", 0, 0}};
  const std::string table = device_table("cuda:0 NVIDIA X", activity);
  EXPECT_THAT(table, HasSubstr("cuda:0 NVIDIA X, sampled for 0.50 s: busy 50.0%, overlap factor 1.50\n"));
  EXPECT_THAT(table, HasSubstr("compute0        0.2500    50.0%       1200\n"));
  EXPECT_THAT(table, HasSubstr("h2d             0.0000     0.0%          0\n"));
  EXPECT_THAT(table, testing::Not(HasSubstr("dropped")));
  activity.dropped = 3;
  EXPECT_THAT(device_table("x", activity), HasSubstr("3 records were dropped"));
}

}  // namespace
}  // namespace braid::worker
