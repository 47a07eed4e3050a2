// Checks of measured time, which a machine that does other things too may spoil now and then.
#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

namespace braid {

/// Runs `body` until an attempt of it fails no EXPECT or ASSERT and throws nothing; of the last attempt the
/// failures count. What the machine delays passes in some attempt, what the code delays in none: attempts go
/// on for 40 seconds, `fewest` at least, with growing pauses, so that a machine that is busy for some seconds
/// has time to recover. `body` begins anew each time, and its checks are made on this thread.
template <class Body>
void in_some_attempt(Body&& body, int fewest = 3) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  std::chrono::milliseconds pause{10};
  for (int i = 1; i < fewest || std::chrono::steady_clock::now() < end; ++i) {
    ::testing::TestPartResultArray results;
    bool failed = false;
    {
      ::testing::ScopedFakeTestPartResultReporter intercept(
          ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
      try {
        body();
      } catch (const std::exception&) {
        failed = true;
      }
    }
    for (int r = 0; r < results.size(); ++r) failed |= results.GetTestPartResult(r).failed();
    if (!failed) return;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(1000));
  }
  body();
}

}  // namespace braid
