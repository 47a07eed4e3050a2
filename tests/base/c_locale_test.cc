#include "base/c_locale.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/support/comma_locale.h"

namespace braid {
namespace {

std::string one_and_a_half() {
  char text[16];
  std::snprintf(text, sizeof(text), "%.1f", 1.5);
  return text;
}

TEST(CLocaleTest, NumbersHaveAPointWhateverTheLocale) {
  const CommaLocale locale;
  if (!locale.is_set()) GTEST_SKIP() << "localedef makes no locale: install the package locales";
  ASSERT_EQ(one_and_a_half(), "1,5");
  ASSERT_EQ(std::strtod("1.5", nullptr), 1) << "which ends at the point";
  EXPECT_EQ(strtod_in_c("1.5"), 1.5);
  EXPECT_EQ(strtod_in_c("0x1.8p+1"), 3);
  EXPECT_EQ(strtod_in_c("1.5e-400"), 0);
  {
    const InCLocale here;
    EXPECT_EQ(one_and_a_half(), "1.5");
  }
  EXPECT_EQ(one_and_a_half(), "1,5") << "the program's own again";
}

}  // namespace
}  // namespace braid
