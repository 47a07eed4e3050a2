// Subcommands of braid that look at files and write files, run as users run them.
#pragma once

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/integration/run.h"

namespace braid::integration {

class ToolTest : public IntegrationTest {
 protected:
  /// Fails the test unless braid ends with 0; what it has printed.
  std::string expect_good(std::vector<std::string> arguments) {
    const std::string shown = ::testing::PrintToString(arguments);
    const auto process = run("tool", std::move(arguments));
    EXPECT_EQ(process->wait({}), 0) << shown << process->err();
    return process->out();
  }
  /// Fails the test unless braid ends with 2, the code of bad input, and an error that `says` matches.
  template <class Matcher>
  void expect_refused(std::vector<std::string> arguments, Matcher says) {
    const std::string shown = ::testing::PrintToString(arguments);
    const auto process = run("tool", std::move(arguments));
    EXPECT_EQ(process->wait({}), 2) << shown;
    EXPECT_THAT(process->err(), says) << shown;
  }
};

}  // namespace braid::integration
