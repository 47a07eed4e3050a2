#include "worker/inference/stream_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/cpu.h"
#include "base/error.h"
#include "engine/device/core_budget.h"

namespace braid::worker {
namespace {

constexpr std::size_t kNear = 4;  // so many turns of 20 us make up for waking a thread
constexpr std::chrono::microseconds kSpin{100};

/// Looks for a grant without sleeping, as long as no core is needed for something else.
void spin_for(const std::atomic<int>& group) {
  CoreBudget::enter();
  const auto end = std::chrono::steady_clock::now() + kSpin;
  while (group.load(std::memory_order_acquire) < 0 && CoreBudget::may_spin() &&
         std::chrono::steady_clock::now() < end)
    for (int i = 0; i < 32; ++i) cpu_relax();
  CoreBudget::leave();
}

}  // namespace

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
  self.near = waiting_.size() <= kNear;
  bool spun = false;
  while (self.group < 0) {
    if (self.near && !spun) {
      lock.unlock();
      spin_for(self.group);
      lock.lock();
      spun = true;
    } else if (!self.changed.wait_until(lock, wait.stop, wait.deadline,
                                        [&] { return self.group >= 0 || (self.near && !spun); })) {
      waiting_.erase(place);
      call_nearest();
      wait.check(what);
      throw DeadlineExceeded(what + ": deadline exceeded");
    }
  }
  return {*this, self.group};
}

void StreamGroups::call_nearest() noexcept {
  std::size_t place = 0;
  for (Waiter* waiter : waiting_) {
    if (place++ == kNear) break;
    if (std::exchange(waiter->near, true)) continue;
    waiter->changed.notify_one();
  }
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
  next->group.store(index, std::memory_order_release);
  next->changed.notify_one();  // under the lock: the waiter lives until it has it
  call_nearest();
}

std::vector<StreamGroups::Stats> StreamGroups::stats() const {
  const std::lock_guard lock(mu_);
  std::vector<Stats> all;
  for (const Group& group : groups_)
    all.push_back({group.requests, std::chrono::duration<double>(group.busy).count()});
  return all;
}

std::size_t StreamGroups::waiting() const {
  const std::lock_guard lock(mu_);
  return waiting_.size();
}

}  // namespace braid::worker
