#include "base/env.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/cpu.h"
#include "tests/support/expect_error.h"

namespace braid {
namespace {

using namespace std::chrono_literals;

class EnvTest : public ::testing::Test {
 protected:
  static constexpr const char* kName = "BRAID_TEST_VARIABLE";
  void set(const char* value) { ::setenv(kName, value, 1); }
  void TearDown() override { ::unsetenv(kName); }
};

TEST_F(EnvTest, UnsetAndEmptyAreAbsent) {
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(env_string(kName), std::nullopt);
    EXPECT_EQ(env_bool(kName), std::nullopt);
    EXPECT_EQ(env_int(kName), std::nullopt);
    EXPECT_EQ(env_double(kName), std::nullopt);
    EXPECT_EQ(env_duration(kName), std::nullopt);
    set("");
  }
}

TEST_F(EnvTest, FalseAndZeroMeanFalse) {
  for (const char* text : {"false", "0", "no", "off", "False", "OFF"}) {
    set(text);
    EXPECT_EQ(env_bool(kName), false) << text;
  }
  for (const char* text : {"true", "1", "yes", "on", "TRUE"}) {
    set(text);
    EXPECT_EQ(env_bool(kName), true) << text;
  }
}

TEST_F(EnvTest, NumbersParseWhole) {
  set("-12");
  EXPECT_EQ(env_int(kName), -12);
  EXPECT_EQ(env_double(kName), -12.0);
  EXPECT_EQ(env_string(kName), "-12");
  set("1e-3");
  EXPECT_EQ(env_double(kName), 1e-3);
}

TEST_F(EnvTest, ErrorsNameTheVariableItsValueAndWhatWasExpected) {
  set("maybe");
  EXPECT_ERROR(env_bool(kName), InvalidArgument,
               "environment variable BRAID_TEST_VARIABLE='maybe': expected true, false, 1 or 0");
  EXPECT_ERROR(env_int(kName), InvalidArgument,
               "environment variable BRAID_TEST_VARIABLE='maybe': expected a whole number");
  EXPECT_ERROR(
      env_duration(kName), InvalidArgument,
      "environment variable BRAID_TEST_VARIABLE='maybe': expected a duration like 250ms, 5s, 2m or 1h");
  set("70000");
  EXPECT_ERROR(env_int(kName, 0, 65535), InvalidArgument,
               "environment variable BRAID_TEST_VARIABLE='70000': expected a whole number from 0 to 65535");
  EXPECT_ERROR(env_int(kName, 70001), InvalidArgument, ::testing::HasSubstr("of at least 70001"));
}

TEST(ParseTest, IntegersRefuseWhatIsNotOne) {
  EXPECT_EQ(parse_int("0"), 0);
  EXPECT_EQ(parse_int("+7"), 7);
  EXPECT_EQ(parse_int("9223372036854775807"), INT64_MAX);
  for (const char* text : {"", " 1", "1 ", "1.0", "0x10", "9223372036854775808", "+-1", "--1", "one"})
    EXPECT_EQ(parse_int(text), std::nullopt) << text;
}

TEST(ParseTest, NumbersAreFinite) {
  EXPECT_EQ(parse_double("+0.5"), 0.5);
  for (const char* text : {"", "nan", "inf", "1e999", "1,5", "0.5x"})
    EXPECT_EQ(parse_double(text), std::nullopt) << text;
}

TEST(ParseTest, DurationsHaveUnits) {
  EXPECT_EQ(parse_duration("250ms"), 250ms);
  EXPECT_EQ(parse_duration("5s"), 5s);
  EXPECT_EQ(parse_duration("5"), 5s);
  EXPECT_EQ(parse_duration("1.5m"), 90s);
  EXPECT_EQ(parse_duration("2h"), 2h);
  EXPECT_EQ(parse_duration("10us"), 10us);
  EXPECT_EQ(parse_duration("3ns"), 3ns);
  EXPECT_EQ(parse_duration("0"), 0s);
  for (const char* text : {"", "s", "-1s", "5 s", "5d", "1e30h", "ms250"})
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
}

TEST(CpuTest, ThereIsAtLeastOneCoreAndAName) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_FALSE(cpu_name().empty());
}

}  // namespace
}  // namespace braid
