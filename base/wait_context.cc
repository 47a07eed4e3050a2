#include "base/wait_context.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace braid {

WaitContext WaitContext::with_timeout(std::chrono::nanoseconds timeout, std::stop_token stop) {
  auto now = Clock::now();
  auto room = Clock::time_point::max() - now;
  return {timeout < room ? now + timeout : Clock::time_point::max(), std::move(stop)};
}

WaitContext WaitContext::at_most(std::chrono::nanoseconds timeout) const {
  return {std::min(deadline, with_timeout(timeout).deadline), stop};
}

std::chrono::nanoseconds WaitContext::remaining() const {
  return std::max<std::chrono::nanoseconds>(deadline - Clock::now(), std::chrono::nanoseconds(0));
}

void WaitContext::check(std::string_view what) const {
  if (stopped()) throw Cancelled(std::string(what) + ": cancelled");
  if (expired()) throw DeadlineExceeded(std::string(what) + ": deadline exceeded");
}

}  // namespace braid
