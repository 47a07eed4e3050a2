#include "worker/run/slow_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace braid::worker {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

template <class Work>
std::string log_of(Work work) {
  testing::internal::CaptureStderr();
  work();
  return testing::internal::GetCapturedStderr();
}

TEST(SlowStartTest, SaysWhatTakesLong) {
  EXPECT_THAT(log_of([] {
                const SlowStart slow("reading rows", milliseconds(10));
                std::this_thread::sleep_for(milliseconds(200));
              }),
              HasSubstr("start: reading rows takes 0.0 s so far"));
}

TEST(SlowStartTest, IsSilentOtherwiseAndEndsAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(log_of([] { const SlowStart slow("reading rows"); }), Not(HasSubstr("start:")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace braid::worker
