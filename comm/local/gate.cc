#include "comm/local/gate.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "base/cpu.h"
#include "comm/rendezvous/rendezvous.h"

namespace braid::comm {
namespace {

constexpr int kLooksBeforeSleep = 2000;

}  // namespace

Gate::Gate(int size) : size_(size), here_(static_cast<std::size_t>(size)) {}

void Gate::pass(int rank, std::string_view operation, const WaitContext& wait) {
  std::unique_lock lock(mu_);
  throw_if_broken_locked();
  here_[static_cast<std::size_t>(rank)] = true;
  const std::uint64_t meeting = meetings_.load(std::memory_order_relaxed);
  if (++arrivals_ == size_) {
    arrivals_ = 0;
    here_.assign(here_.size(), false);
    meetings_.store(meeting + 1, std::memory_order_release);
    changed_.notify_all();
    return;
  }
  lock.unlock();
  for (int look = 0; look < kLooksBeforeSleep && meetings_.load(std::memory_order_acquire) == meeting; ++look)
    cpu_relax();
  if (meetings_.load(std::memory_order_acquire) != meeting) return;
  lock.lock();
  sleep(lock, fmt::format("rank {} of this process: {}", rank, operation), meeting, wait);
}

void Gate::sleep(std::unique_lock<std::mutex>& lock, std::string_view what, std::uint64_t meeting,
                 const WaitContext& wait) {
  const auto met = [&] { return meetings_.load(std::memory_order_acquire) != meeting; };
  try {
    wait_on(changed_, lock, wait, what, [&] { return met() || broken_; });
  } catch (const DeadlineExceeded& error) {
    break_locked(error.code(), fmt::format("{}: {} (threads of this process) did not take part",
                                           error.message(), rank_list(missing_locked())));
  } catch (const Error& error) {
    break_locked(error.code(), error.message());
  }
  if (met()) return;
  const ErrorPtr error = broken_;
  throw_error(*error);
}

void Gate::break_off(ErrorCode code, const std::string& why) {
  const std::lock_guard lock(mu_);
  break_locked(code, why);
}

void Gate::break_locked(ErrorCode code, const std::string& why) {
  if (!broken_) broken_ = make_error(code, why);
  changed_.notify_all();
}

void Gate::throw_if_broken_locked() const {
  if (broken_) throw Unavailable("the communicator is broken: " + broken_->message);
}

std::vector<int> Gate::missing_locked() const {
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank)
    if (!here_[static_cast<std::size_t>(rank)]) missing.push_back(rank);
  return missing;
}

}  // namespace braid::comm
