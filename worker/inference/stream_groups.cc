#include "worker/inference/stream_groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace braid::worker {

StreamGroups::StreamGroups(int count, std::size_t queue_capacity)
    : groups_(static_cast<std::size_t>(std::max(count, 0))), queue_capacity_(queue_capacity) {
  if (count < 1) throw InvalidArgument(fmt::format("at least one stream group is needed, got {}", count));
}

StreamGroups::Lease StreamGroups::acquire(const WaitContext& wait) {
  const std::string what = fmt::format("waiting for one of {} stream groups", groups_.size());
  std::unique_lock lock(mu_);
  wait.check(what);
  const auto least = std::min_element(groups_.begin(), groups_.end(), [](const Group& a, const Group& b) {
    return a.free != b.free ? a.free : a.busy < b.busy;
  });
  if (least->free) {
    least->free = false;
    least->since = Clock::now();
    return {*this, static_cast<int>(least - groups_.begin())};
  }
  if (waiting_.size() >= queue_capacity_)
    throw Unavailable(fmt::format("all {} stream groups work and {} requests wait, which is the limit",
                                  groups_.size(), waiting_.size()));
  Waiter self;
  const auto place = waiting_.insert(waiting_.end(), &self);
  if (!self.granted.wait_until(lock, wait.stop, wait.deadline, [&] { return self.group >= 0; })) {
    waiting_.erase(place);
    wait.check(what);
    throw DeadlineExceeded(what + ": deadline exceeded");
  }
  return {*this, self.group};
}

void StreamGroups::release(int index) noexcept {
  const std::lock_guard lock(mu_);
  Group& group = groups_[static_cast<std::size_t>(index)];
  const Clock::time_point now = Clock::now();
  group.busy += now - group.since;
  ++group.requests;
  group.since = now;
  group.free = waiting_.empty();
  if (group.free) return;
  Waiter* next = waiting_.front();
  waiting_.pop_front();
  next->group = index;
  next->granted.notify_one();  // under the lock: the waiter lives until it has it
}

std::vector<StreamGroups::Stats> StreamGroups::stats() const {
  const std::lock_guard lock(mu_);
  std::vector<Stats> all;
  for (const Group& group : groups_)
    all.push_back({group.requests, std::chrono::duration<double>(group.busy).count()});
  return all;
}

}  // namespace braid::worker
