// Names of hosts: the deadline of a look-up, which getaddrinfo() does not have.
#include "base/look_up.h"

#include <gtest/gtest.h>

#include <stop_token>

namespace braid {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kNobody = "nobody.invalid";  // never registered (RFC 2606)

TEST(LookUpTest, ANameThatNobodyHasIsSaidToBeUnknown) {
  std::string reason;
  EXPECT_EQ(look_up(kNobody, "80", WaitContext::with_timeout(seconds(60)), reason), nullptr);
  EXPECT_FALSE(reason.empty());
  EXPECT_NE(reason, "the name server does not answer");
}

TEST(LookUpTest, TheDeadlineAndAStopAreKeptWhileTheNameServerIsSilent) {
  std::string reason;
  EXPECT_EQ(look_up(kNobody, "80", WaitContext::with_timeout(milliseconds(0)), reason), nullptr);
  EXPECT_EQ(reason, "the name server does not answer");
  std::stop_source stop;
  stop.request_stop();
  reason.clear();
  WaitContext wait = WaitContext::with_timeout(seconds(60));
  wait.stop = stop.get_token();
  EXPECT_EQ(look_up(kNobody, "81", wait, reason), nullptr);
  EXPECT_EQ(reason, "the name server does not answer");
}

TEST(LookUpTest, NumbersAndTheOwnNameAreFound) {
  std::string reason;
  const auto number = look_up("127.0.0.1", "80", WaitContext::with_timeout(milliseconds(0)), reason);
  ASSERT_NE(number, nullptr) << "which asks nobody";
  EXPECT_EQ(number->ai_family, AF_INET);
  EXPECT_NE(look_up("::1", "80", WaitContext::with_timeout(milliseconds(0)), reason), nullptr);
  EXPECT_NE(look_up("localhost", "80", WaitContext::with_timeout(seconds(60)), reason), nullptr) << reason;
}

}  // namespace
}  // namespace braid
