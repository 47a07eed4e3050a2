#include "worker/run/waits.h"

#include <algorithm>
#include <cstdint>

#include "proto/job.pb.h"
#include "worker/input/followed_input.h"
#include "worker/input/taken_batches.h"
#include "worker/job/elastic.h"
#include "worker/job/job.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

std::chrono::nanoseconds wait_ns(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

}  // namespace

bool RunWaits::alone() const { return run_.peers.world == 1 && !run_.peers.servers; }

WaitContext RunWaits::start() const {
  return WaitContext::with_timeout(wait_ns(run_.job.strategy().start_deadline_seconds()));
}

WaitContext RunWaits::first() const {
  return WaitContext::with_timeout(wait_ns(run_.job.strategy().start_deadline_seconds()), run_.stop.token());
}

WaitContext RunWaits::next_world() const {
  const ElasticLimits limits = *elastic_limits(run_.job);
  const auto start = wait_ns(run_.job.strategy().start_deadline_seconds());
  return WaitContext::with_timeout(start + limits.wait + limits.silence, run_.stop.token());
}

std::chrono::nanoseconds RunWaits::step_time() const {
  if (alone()) return std::chrono::hours(1);
  return wait_ns(run_.job.strategy().deadline_seconds() + 2.0);
}

WaitContext RunWaits::step() const {
  if (alone()) return WaitContext::with_timeout(step_time());
  return WaitContext::with_timeout(step_time(), grace_.token());
}

WaitContext RunWaits::input() const {
  if (takes_batches(run_.job)) return WaitContext::with_timeout(kTakeTime, grace_.token());
  if (!run_.job.input().has_follow()) return step();
  const auto time = std::max(step_time(), follow_time(run_.job));
  return alone() ? WaitContext::with_timeout(time) : WaitContext::with_timeout(time, grace_.token());
}

WaitContext RunWaits::peers() const {
  if (run_.peers.world == 1) return step();
  return step().at_most(wait_ns(run_.job.strategy().deadline_seconds()));
}

}  // namespace braid::worker
