#include "engine/ir/device_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

namespace braid {
namespace {

std::string full(std::string_view text) { return full_device_name(parse_device_name(text)); }

TEST(DeviceNameTest, FullAndShortFormsMeanTheSame) {
  EXPECT_EQ(full("/job:worker/replica:2/task:1/device:GPU:3"), "/job:worker/replica:2/task:1/device:GPU:3");
  EXPECT_EQ(full("/job:worker/task:1/gpu:3"), "/job:worker/replica:0/task:1/device:GPU:3");
  for (const char* text :
       {"/gpu:0", "/GPU:0", "GPU:0", "/device:GPU:0", "/device:gpu:0", "/device:GPU:*", "gpu"})
    EXPECT_EQ(full(text), "/job:localhost/replica:0/task:0/device:GPU:0") << text;
  EXPECT_EQ(full("/cpu:1"), "/job:localhost/replica:0/task:0/device:CPU:1");
}

TEST(DeviceNameTest, WhatIsNotSaidIsNothing) {
  const DeviceName nothing = parse_device_name("");
  EXPECT_FALSE(nothing.job || nothing.replica || nothing.task || nothing.kind || nothing.index);
  const DeviceName ps = parse_device_name("/job:ps/task:*/device:*");
  EXPECT_EQ(ps.job, "ps");
  EXPECT_FALSE(ps.task || ps.kind || ps.index);
  EXPECT_EQ(full(""), "/job:localhost/replica:0/task:0/device:CPU:0");
}

TEST(DeviceNameTest, OtherTextsAreRefusedWithThePartThatIsWrong) {
  const auto refusal = [](std::string_view text) { return message_of([&] { parse_device_name(text); }); };
  EXPECT_EQ(refusal("/job:worker/tusk:1"),
            "'/job:worker/tusk:1' is not a device's name: 'tusk:1' is neither job:NAME, replica:N, task:N, "
            "device:KIND:N, cpu:N nor gpu:N");
  for (const char* text : {"/task:x", "/gpu:-1", "/gpu:99999999999", "/job:1worker", "/job:", "//cpu:0",
                           "/cpu", "/device:", "/job:a/cpu:0/", "3"})
    EXPECT_THAT(refusal(text), ::testing::HasSubstr("is not a device's name")) << text;
  EXPECT_EQ(refusal("/cpu:0/device:GPU:1"),
            "'/cpu:0/device:GPU:1' is not a device's name: 'GPU:1' says again what was said before");
}

}  // namespace
}  // namespace braid
