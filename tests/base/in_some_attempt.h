// Checks of measured time, which a machine that does other things too may spoil now and then.
#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

namespace braid {

/// Runs `body` until an attempt of it fails no EXPECT or ASSERT; of the last attempt the failures count. What
/// the machine delays passes in some attempt, what the code delays in none. `body` begins anew each time, and
/// its checks are made on this thread.
template <class Body>
void in_some_attempt(Body&& body, int attempts = 10) {
  for (int i = 1; i < attempts; ++i) {
    ::testing::TestPartResultArray results;
    {
      ::testing::ScopedFakeTestPartResultReporter intercept(
          ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
      body();
    }
    bool failed = false;
    for (int r = 0; r < results.size(); ++r) failed |= results.GetTestPartResult(r).failed();
    if (!failed) return;
  }
  body();
}

}  // namespace braid
